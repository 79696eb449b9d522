"""Images that could not be read: named on both sides, and never more of them than in the baseline unasked."""

from dataclasses import replace

import pytest

from holdfast.errors import HoldfastError
from holdfast.gate.baseline import read_baseline, save_baseline
from holdfast.gate.output import junit, markdown, terminal
from holdfast.gate.paired_scores import paired_scores_of
from holdfast.gate.rules import Rules, rules_of
from holdfast.gate.verdicts import decide
from tests.gate.test_verdicts import benchmark


def without(held, *lost):
    """The records of somebody who could not read some images."""
    names = {f"image {number}" for number in lost}

    def kept(one):
        rows = [row for row, name in enumerate(one.ids) if name not in names]
        fields = {key: values[rows] for key, values in one.fields.items()}
        return replace(one, ids=one.ids[rows], targets=one.targets[rows], fields=fields, excluded=tuple(sorted(names)))

    return replace(held, by_view={"": {name: kept(one) for name, one in held.cells.items()}})


def test_more_unreadable_images_than_in_the_baseline_are_refused_unless_allowed(tmp_path):
    old, new = without(benchmark(), 3), without(benchmark(), 3, 7, 50)
    save_baseline(paired_scores_of(old), tmp_path / "b.json")
    for before in (paired_scores_of(old), read_baseline(tmp_path / "b.json")):
        with pytest.raises(HoldfastError, match=r"image 50, image 7.*3.*than.*1.*--allow-unreadable 2"):
            decide(paired_scores_of(new), before, Rules())
        with pytest.raises(HoldfastError, match="--allow-unreadable 2"):
            decide(paired_scores_of(new), before, Rules(allow_unreadable=1))
        assert {answer.images for answer in decide(paired_scores_of(new), before, Rules(allow_unreadable=2))} == {97}
    assert decide(paired_scores_of(old), paired_scores_of(new), Rules())  # fewer than before are no reason to refuse


def test_unreadable_images_are_named_on_both_sides():
    old, new = without(benchmark(), 3, 50), without(benchmark(), 7)
    answers = decide(paired_scores_of(new), paired_scores_of(old), Rules())
    assert {(answer.unreadable_before, answer.unreadable) for answer in answers} == {
        (("image 3", "image 50"), ("image 7",))
    }
    for text in (terminal(answers), markdown(answers), junit(answers)):
        assert "unreadable in the baseline: image 3, image 50" in text
        assert "unreadable now: image 7" in text
    assert "unreadable" not in terminal(decide(paired_scores_of(benchmark()), paired_scores_of(benchmark()), Rules()))


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "two"])
def test_the_number_that_is_allowed_is_a_number(wrong):
    with pytest.raises(HoldfastError, match="allow_unreadable must be a whole number, at least 0"):
        rules_of({"allow_unreadable": wrong}, name="gate.yaml")


def test_aligned_columns_stay_aligned():
    lines = terminal(decide(paired_scores_of(benchmark()), paired_scores_of(benchmark()), Rules())).splitlines()
    header = next(number for number, line in enumerate(lines) if line.startswith("rule "))
    rows, ends = lines[header + 1 : -1], lines[header].index("now") + len("now")
    assert len({row.index("  ") for row in rows}) > 1  # rules of different lengths
    assert all(row[ends - 1].isdigit() and row[ends] == " " for row in rows)
