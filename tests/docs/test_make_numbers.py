"""The generator of numbers in prose, and that the pages hold what it makes of the stored results."""

import re

import pytest

from tests.docs.blocks import PAGES, ROOT
from tests.docs.test_complete import made_by


@pytest.fixture(scope="module")
def maker():
    return made_by("make_numbers")


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ("2.2", 2.2415, "2.2"),
        ("2.20", 2.2415, "2.24"),
        ("9", 9.19, "9"),
        ("10,000", 12345.0, "12,345"),
        ("10000", 12345.0, "12345"),
        ("+13", "+15 %", "+15"),
        ("13", "+15 %", "15"),
        ("+13", "-15 %", "-15"),
        ("−17", "-15 %", "−15"),
        ("68.8", "**70.1** ± 5.2", "70.1"),
        ("+1.0 (-0.1 to +2.1)", "**+1.2** (+0.1 to +2.3)", "+1.2 (+0.1 to +2.3)"),
        ("+1.0", "**+1.2** (+0.1 to +2.3)", "+1.2"),
        ("three", "2", "two"),
        ("eight", 0, "none"),
        ("not resolved", "holds", "holds"),
    ],
)
def test_a_value_takes_the_form_that_its_place_has(maker, before, value, after):
    assert maker.shown_as(before, value) == after


def test_only_the_number_in_front_of_a_mark_is_written_anew(maker):
    text = "In 2026 it takes **1.9<!-- = cost --> times** as long, 3 seeds, +0.1 (-1.0 to +1.2)<!-- = gain --> points."
    made = maker.with_numbers(text, {"cost": 2.24, "gain": "+0.3 (-0.8 to +1.4)"}.__getitem__)
    assert made == text.replace("1.9", "2.2").replace("+0.1 (-1.0 to +1.2)", "+0.3 (-0.8 to +1.4)")


def test_a_mark_behind_no_number_is_an_error(maker):
    with pytest.raises(ValueError, match="1 of the page's marks follow no number"):
        maker.with_numbers("as long as ever<!-- = cost -->, 2<!-- = cost --> times", lambda name: 2.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("perf/methods: adl, explicit, 4096, megabytes", 2065.09375),
        ("perf/anytime_passes: models, ViT-S, 224 px, ratio", 0.9452634859042781),
        ("measured/adversary.csv: lr 1, stronger than random", "+211 %"),
        ("scenes/detection: claims", 8),
        ("scenes/detection: claims that hold", 0),
        ("scenes/detection: AFAT − baseline, mask mPC", "+0.5 (-0.3 to +1.4)"),  # a claim
        ("scenes/detection: AFAT − baseline, mask AP", "+0.4 (-0.9 to +1.7)"),  # a difference that no claim is about
        ("scenes/detection: AFAT − baseline, mask mPC, verdict", "not resolved"),
        ("scenes/detection: baseline, box AP", "61.7 ± 0.7"),
        ("scenes/detection: lowest, box AP", "61.1 ± 0.3"),
        ("scenes/detection: largest end, box mPC", 1.1),
        ("scenes/detection breaks: baseline, found, clean", "92.7"),
    ],
)
def test_a_name_finds_what_is_stored(maker, name, value):
    assert maker.value_of(name) == value


def test_a_name_that_nothing_has_is_an_error(maker):
    with pytest.raises(KeyError):
        maker.value_of("scenes/detection: nobody − baseline, mask mPC")


def marked_pages():
    return [page for page in PAGES if "<!-- = " in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", marked_pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_numbers_of_a_page_are_those_that_are_stored(maker, page):
    text = page.read_text(encoding="utf-8")
    assert text == maker.with_numbers(text, maker.value_of), "run python docs/tools/make_numbers.py"


IN_PROSE = ["improve", "results/improve", "results/camvid", "results/imagenette", "results/imagenette-tora"]


@pytest.mark.parametrize("name", IN_PROSE)
def test_intervals_in_prose_are_marked(name):
    """Those of an answer that has been revised since are said to be so, and are of no table."""
    answer = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").partition("\n## Set-up")[0]
    prose = [line for line in answer.splitlines() if not line.startswith("|")]
    quoted = re.findall(r"[+-][\d.]+ \([+-][\d.]+ to [+-][\d.]+\)(?!<!-- = )", "\n".join(prose))
    revised = {"results/camvid": 1, "results/imagenette": 2}
    assert len(quoted) == revised.get(name, 0), quoted
