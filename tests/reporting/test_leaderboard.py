"""The leaderboard: a page of all models, a page of each; what was measured and what is printed never meet."""

import re

import pytest

from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.published import published
from holdfast.records.records import load_records
from holdfast.reporting.page import report, script
from tests.reporting.helpers import make_records, make_run
from tests.reporting.test_page import HOSTILE, Page

CELLS = ("clean", "fog/1", "fog/2", "fog/3", "fog/4", "fog/5", "pgd5")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("site")
    made = [make_run(root / name, cells=CELLS, hold=hold, trained=False) for name, hold in (("a", 0.3), ("b", 0.8))]
    stored = {"data": "cifar10-c:x", "data_fingerprint": "c", "label": "official"}
    make_records(made[0], hold=0.5, cells=CELLS[1:-1], **stored)
    return made


@pytest.fixture(scope="module")
def site(runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "board"
    words = [*map(str, runs), "--format", "site", "--out", str(out), "--names", f"{HOSTILE},b", "--title", "Who holds"]
    assert main(["report", *words]) == 0
    return out


def test_every_ranking_is_of_one_protocol_and_best_first(site, runs):
    text = (site / "index.html").read_text()
    sections = re.findall(r'<section id="(ranking-\d)".*?</section>', text, re.S)
    assert sections == ["ranking-1", "ranking-2"]
    second, first = re.findall(r'<section id="ranking-.*?</section>', text, re.S)
    assert "measured here, on the fly" in first
    assert "on the stored images as distributed" in second
    assert len(re.findall("<tr><th", first)) == 3  # the heading, two models
    assert len(re.findall("<tr><th", second)) == 2
    fog = [load_records(run)[-1].summary(intervals=False)["accuracy/fog"].value for run in runs]
    shown = [
        float(v) for v in re.findall(r'data-score="mean_corruption_accuracy_partial" data-value="([\d.]+)"', first)
    ]
    assert shown == sorted(shown, reverse=True)
    assert sorted(shown) == pytest.approx(sorted(fog))


def test_papers_of_the_same_data_have_tables_of_their_own_and_look_different(site):
    text = (site / "index.html").read_text()
    first, second = text.split('<section id="ranking-2"')
    stored, printed = first.split('<section class="printed"')
    assert 'class="printed"' not in second  # no paper has scores on digits
    assert 'class="papers' not in stored.split("<main>")[1]
    assert "data-score" not in printed
    tables = published("scores")
    rows = re.findall(r'<tr><th scope="row">', printed)
    assert len(rows) == len(tables["cifar"]) + len(tables["cifar_c_bar"])
    assert "not measured here" in printed
    assert ".printed tbody td" in text  # in italics, on no card


def test_models_have_architecture_cost_and_the_paper(tmp_path):
    runs = [make_run(tmp_path / name, cells=("clean",)) for name in ("a", "b")]
    page = Page(report(runs, format="site", out=tmp_path / "board"))
    assert "https://arxiv.org/abs/2204.12451" in {a["href"] for a in page.all("a")}
    assert page.text.count("fan_nano") == 2
    assert {cell["data-value"] for cell in page.all("td") if cell.get("data-value") == "920000"} == {"920000"}


def test_every_model_has_a_page_that_leads_back(site, runs):
    index = Page((site / "index.html").read_text())
    links = {a["href"] for a in index.all("a") if a["href"].startswith("models/")}
    pages = sorted((site / "models").iterdir())
    assert {site / link for link in links} == set(pages)
    assert len(pages) == 2
    page = Page(pages[1].read_text())
    assert "../index.html" in {a["href"] for a in page.all("a")}
    assert {row["data-run"] for row in page.all("tr") if "data-run" in row} == {"1"}
    assert f"holdfast evaluate run:{runs[1]}" in page.text


def test_hostile_names_are_text_in_every_page_and_in_no_file_name(site):
    for path in site.rglob("*.html"):
        text = path.read_text()
        page = Page(text)
        assert text.count("<script") == 1
        assert script() in text
        assert not page.all("img")
        assert not [a for _, a in page.elements if any(key.startswith("on") for key in a)]
    assert all(re.fullmatch(r"[\w-]+\.html", path.name) for path in (site / "models").iterdir())


def test_the_site_says_how_it_was_made(site):
    assert "--title 'Who holds'" in Page((site / "index.html").read_text()).text
    assert f"--format site --out {site}" in re.sub(
        r" --names .*? --title 'Who holds'", "", Page((site / "index.html").read_text()).text
    )


def test_a_site_is_replaced_and_nothing_else(runs, tmp_path):
    out = tmp_path / "board"
    report(runs, format="site", out=out)
    report(runs[:1], format="site", out=out)
    assert len(list((out / "models").iterdir())) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["board"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(HoldfastError, match="must be a new folder or a leaderboard to replace"):
        report(runs[:1], format="site", out=tmp_path / "mine")
    with pytest.raises(HoldfastError, match="out must name the folder of the site"):
        report(runs[:1], format="site")
    (tmp_path / "file").write_text("")
    with pytest.raises(HoldfastError, match="must be a folder for --format site"):
        report(runs[:1], format="site", out=tmp_path / "file")
