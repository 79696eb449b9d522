"""What docs/results says is what the results in the repository say, and the shipped studies still know them."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from holdfast.metrics.intervals import Interval
from holdfast.studies.config import study_names

ROOT = Path(__file__).parents[2]
STUDIES = [name for name in study_names() if (ROOT / "studies" / name.replace("/", "-") / "results").is_dir()]


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_results", ROOT / "docs" / "tools" / "make_results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", STUDIES)
def test_the_pages_table_is_made_of_the_results(maker, name):
    study, results = maker.finished_study(name)
    assert list(results) == [row for row in study.rows if row in results]
    assert results
    page = maker.page_of(name)
    assert page is not None, f"no page of docs/results shows {name}"
    text = page.read_text(encoding="utf-8")
    assert maker.PARTS["table"](study, results) in text
    summary = (ROOT / "studies" / study.name / "summary.md").read_text(encoding="utf-8")
    assert maker.PARTS["table"](study, results) in summary


ALIVE = {"afat": "alignment", "adl": "adl_active_rows", "adversarial": "adversarial_cross_entropy"}


@pytest.mark.parametrize("name", STUDIES)
def test_every_part_of_every_objective_was_alive(maker, name):
    study, results = maker.finished_study(name)
    for row, runs in results.items():
        asked = study.recipe_of(row, runs[0].seed).objective.options
        for trace in (trace for part, trace in ALIVE.items() if asked.get(part)):
            for run in (run for run in runs if run.traces):  # the first results kept none
                values = run.traces[trace][:, 1]
                assert values[len(values) // 2 :].mean() > 0, f"{row}, seed {run.seed}: {trace}"


def test_the_pages_verdicts_are_made_of_the_results(maker):
    study, results = maker.finished_study("cifar10/tora_lambda")
    assert maker.PARTS["claims"](study, results) in maker.PAGE.read_text(encoding="utf-8")


def test_every_row_of_the_main_study_has_three_seeds(maker):
    study, results = maker.finished_study("cifar10/main")
    assert list(results) == list(study.rows)
    assert all([run.seed for run in runs] == [0, 1, 2] for runs in results.values())


@pytest.mark.parametrize("name", ["cifar10", "imagenette", "imagenette-tora", "detection", "camvid", "claims"])
def test_every_table_of_a_page_is_made_of_the_results_or_says_that_there_are_none(maker, name):
    text = (ROOT / "docs" / "results" / f"{name}.md").read_text(encoding="utf-8")
    assert maker.BLOCK.search(text)
    assert maker.with_tables(text) == text


INTERVAL = re.compile(r"[+-]\d+\.\d+ \([+-]\d+\.\d+ to [+-]\d+\.\d+\)")
MADE = re.compile(r"<!-- (?:[\w/]+: \w+|measured/[\w.]+) -->\n.*?<!-- end -->", re.DOTALL)
WITH_FEWER_SEEDS = [  # what a page tells as a warning: the study, the claim, how many of its seeds there were then
    ("camvid/main", "TAP+ADL raises mIoU at dusk (TAP+ADL, Table 4: of ACDC)", 2),
    ("cifar10/afat_ratio", "Half of the patches is better than none (ours)", 1),
    ("imagenette/pretrained", "AFAT raises accuracy under corruption (AFAT, Table 1)", 2),
    ("imagenette/pretrained", "ADL raises accuracy under corruption (TAP+ADL, Table 2)", 2),
    ("imagenette/pretrained", "TAP+ADL raises accuracy under corruption (TAP+ADL, Table 2)", 2),
    ("imagenette/pretrained", "Patches by attention beat plain training of equal cost under corruption (ours)", 1),
]


def test_every_interval_in_the_text_of_the_documentation_is_one_of_the_results(maker):
    plain = str.maketrans({"*": None, "−": "-"})
    texts = {page: page.read_text(encoding="utf-8").translate(plain) for page in (ROOT / "docs").rglob("*.md")}
    known = {found for text in texts.values() for table in MADE.findall(text) for found in INTERVAL.findall(table)}
    earlier = {with_fewer_seeds(maker, *asked) for asked in WITH_FEWER_SEEDS}
    told = [(page.name, found) for page, text in texts.items() for found in INTERVAL.findall(MADE.sub("", text))]
    assert earlier <= {found for _, found in told}
    assert [(page, found) for page, found in told if found not in known | earlier] == []


def with_fewer_seeds(maker, name, says, seeds):
    """The difference that a claim has when all rows of its study have their first seeds alone."""
    study, results = maker.finished_study(name)
    claim = next(claim for claim in study.claims if claim.says == says)
    few = {row: runs[:seeds] for row, runs in results.items()}
    return maker.verdict_of(claim, few).text.replace("*", "")


def test_the_page_shows_plots_that_exist(maker):
    shown = [line.partition("](")[2].rstrip(")") for line in maker.PAGE.read_text(encoding="utf-8").splitlines()]
    plots = [(maker.PAGE.parent / target).resolve() for target in shown if target.endswith(".png")]
    assert plots
    assert all(plot.is_file() for plot in plots)


def test_every_claim_of_every_study_is_in_the_table_of_its_paper(maker):
    text = (ROOT / "docs" / "results" / "claims.md").read_text(encoding="utf-8")
    for name in study_names():
        study, _ = maker.finished_study(name)
        for claim in study.claims:
            assert maker.paper_of(claim) in maker.PAPERS
            assert f"| {claim.says} | [`{name}`](" in text or f"| {claim.says} | `{name}` |" in text


def test_nothing_is_called_decided_of_fewer_than_three_seeds(maker):
    text = (ROOT / "docs" / "results" / "claims.md").read_text(encoding="utf-8")
    decided = [line for line in text.splitlines() if line.endswith("| decided at this size |")]
    assert decided
    assert all(re.search(r"\((\d+) seeds\)", line) for line in decided)
    assert not [line for line in decided if int(re.search(r"\((\d+) seeds\)", line)[1]) < 3]
    two = maker.Verdict("holds", Interval(1.0, 0.5, 1.5, 0.95), "", 2)
    assert maker._found(two)[-1] == "more seeds"


COVERED = {
    "6 rows": "six rows estimate the seed variance",
    "the two rows alone": "the study has only the two compared rows",
    "6 rows, the others calmer": "the two vary twice as much as the other four",
}


def test_what_the_page_on_studies_says_of_coverage_is_what_was_simulated():
    stored = json.loads((ROOT / "perf" / "results" / "interval_coverage_seeds.json").read_text(encoding="utf-8"))
    covers = {told: [row for row in stored["seeds"] if row["seed_variance_from"] == told] for told in COVERED}
    assert stored["simulations"] >= 2000
    noise = 200 * (0.92 * 0.08 / stored["simulations"]) ** 0.5  # three seeds alone lie at the bar of 92 %
    even = [row for told in ("6 rows", "the two rows alone") for row in covers[told] if row["seeds"] >= 3]
    assert all(row["coverage"] >= 92 - noise for row in even)
    assert all(row["coverage"] >= 92 for row in covers["6 rows"])
    text = " ".join((ROOT / "docs" / "studies.md").read_text(encoding="utf-8").split())
    for told, words in COVERED.items():
        shown = "{:.0f}, {:.0f} and {:.0f} %".format(*(row["coverage"] for row in covers[told]))
        assert f"{shown} when {words}" in text
