"""Makes the tables and plots of docs/results/*.md again from studies/*/results: ``python docs/tools/make_results.py``.

The tables stand between ``<!-- STUDY: PART -->`` and ``<!-- end -->``; everything else on the page is written by hand.
``<!-- PAPER: claims -->`` is the table of all claims of a paper, whichever study asks.
"""

import math
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from dense_tables import alive_table, breaks_table, classes_table, cost_table, kinds_table

from holdfast.data.camvid import CLASSES
from holdfast.io.markdown import DASH, table
from holdfast.studies.columns import available, image_values, shared_seeds
from holdfast.studies.config import Claim, Study, load_study, study_names
from holdfast.studies.figures import Results
from holdfast.studies.report import (
    Verdict,
    claims_table,
    difference_table,
    interval_note,
    judged_claims,
    markdown_table,
    verdict_of,
    views_table,
    write_page,
)
from holdfast.studies.results import all_results

HERE = Path(__file__).parents[1]
PAGE, IMAGES, STUDIES = HERE / "results" / "cifar10.md", HERE / "images" / "results", HERE.parent / "studies"
PAGES = tuple(
    HERE / "results" / f"{name}.md"
    for name in ("cifar10", "imagenette", "imagenette-tora", "detection", "camvid", "claims")
)
BLOCK = re.compile(r"<!-- (?P<study>[\w/]+): (?P<part>\w+) -->\n.*?<!-- end -->", re.DOTALL)

# how the data were named on the command line; they are part of what a result is known by
TRAIN, HELD_OUT, TEST = (
    "npz:data/cifar10_train.npz[0:45000]",
    "npz:data/cifar10_train.npz[45000:50000]",
    "npz:data/cifar10_test.npz",
)
PICTURES = "*Pictures are not kept here: `holdfast study` with `--table-only` draws them from `results/`.*"
PAPERS = ("FAN", "AFAT", "TAP_ADL", "TORA", "ours")
DECIDING_SEEDS = 3  # fewer decide nothing, whatever their interval
MANY = 20  # times as many seeds and images that somebody might still spend
PARTS: dict[str, Callable[[Study, Results], str]] = {
    "table": lambda study, results: markdown_table(results),
    "differences": lambda study, results: f"{difference_table(results)}\n\n*{interval_note(results)}*",
    "claims": lambda study, results: claims_table(judged_claims(study, results), results),
    "kinds": lambda study, results: kinds_table(results),
    "breaks": lambda study, results: breaks_table(results),
    "classes": lambda study, results: classes_table(results, names=CLASSES),
    "alive": lambda study, results: alive_table(results),
    "cost": lambda study, results: cost_table(results),
    "views": lambda study, results: views_table(results),
}


def with_tables(text: str) -> str:
    """The page with every table made again."""

    def block(found: re.Match[str]) -> str:
        if found["study"] in PAPERS:
            return f"<!-- {found['study']}: claims -->\n\n{claims_of(found['study'])}\n\n<!-- end -->"
        study, results = finished_study(found["study"])
        shown = PARTS[found["part"]](study, results) if results else "*Not run yet.*"
        return f"{found[0].partition(chr(10))[0]}\n\n{shown}\n\n<!-- end -->"

    return BLOCK.sub(block, text)


def claims_of(paper: str) -> str:
    """All claims of a paper that a shipped study asks about, with what was seen and what would decide it."""
    rows = []
    for name in study_names():
        study, results = finished_study(name)
        judged = judged_claims(study, results) if results else []
        for claim in study.claims:
            if paper_of(claim) == paper:
                page = page_of(name)
                place = f"[`{name}`]({page.name})" if page else f"`{name}`"
                told = _found(None)
                if claim in judged:
                    told = _found(verdict_of(claim, results), alike=answer_alike(claim, results))
                rows.append([claim.says, place, *told])
    return table(["claim", "study", "measured (95 %)", "verdict", "what would decide it"], rows, numbers=(2,))


def paper_of(claim: Claim) -> str:
    """The paper that it names in brackets; what no paper says is ours."""
    named = re.search(r"\((?:[^()]*for classification )?(TAP\+ADL|AFAT|FAN|TORA)\b[^()]*\)", claim.says)
    return {"TAP+ADL": "TAP_ADL"}.get(named[1], named[1]) if named else "ours"


def answer_alike(claim: Claim, results: Results) -> bool:
    """Whether both rows give the same answers to all images of the claim's column, so that nothing can be seen."""
    column, seeds = available(results)[claim.column], shared_seeds(results[claim.row], results[claim.against])
    first, second = (
        [values for run in results[row] if run.seed in seeds for values in image_values(column, run)]
        for row in (claim.row, claim.against)
    )
    return bool(first) and all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


def _found(found: Verdict | None, *, alike: bool = False) -> list[str]:
    if found is None:
        return [DASH, "not run yet", "the study"]
    value, low, high = found.interval.value, found.interval.low, found.interval.high
    times = math.inf if value == 0 else ((high - low) / 2 / value) ** 2
    if alike:
        needed = "a milder attack: both rows have the same predictions"
    elif found.seeds < DECIDING_SEEDS:
        needed = "more seeds"
    elif found.verdict != "not resolved":
        needed = "decided at this size"
    elif times <= MANY:
        needed = f"{max(2, math.ceil(times))} × the seeds and images, if the true effect is the measured one"
    else:
        needed = f"more than {MANY} ×; effects beyond {max(abs(low), abs(high)):.2g} are ruled out"
    return [found.text, found.summary, needed]


@cache
def finished_study(name: str) -> tuple[Study, Results]:
    """A shipped study and its results in the repository."""
    if not name.startswith("cifar10/"):
        study = load_study(name)
        return study, all_results(STUDIES / study.name, study)
    test = HELD_OUT if name.endswith("select") else TEST
    study = load_study(name, overrides={"data": {"train": TRAIN, "val": HELD_OUT}}, test=test)
    return study, all_results(STUDIES / study.name, study)


def _without_pictures(summary: Path, name: str) -> None:
    """The repository keeps a study's numbers; its pictures are drawn from them."""
    lines = [line for line in summary.read_text(encoding="utf-8").splitlines() if not line.startswith("![")]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip()
    summary.write_text(f"{text}\n\n{PICTURES}\n", encoding="utf-8")


def page_of(study: str) -> Path | None:
    """The page that has this study's table."""
    return next((page for page in PAGES if f"<!-- {study}: table -->" in page.read_text(encoding="utf-8")), None)


def main() -> None:
    """Rewrite the pages, the studies' own summaries, and the plots."""
    for page in PAGES:
        make(page)


def make(page: Path) -> None:
    """Rewrite one page and what its studies show."""
    text = page.read_text(encoding="utf-8")
    for name in dict.fromkeys(found["study"] for found in BLOCK.finditer(text) if found["study"] not in PAPERS):
        study, results = finished_study(name)
        if not results:
            continue
        write_page(study, results, out=STUDIES / study.name)
        for plot in (STUDIES / study.name).glob("*.png"):
            target = IMAGES / f"{study.name}-{plot.name}"
            if target.name in text:
                shutil.move(plot, target)
            else:
                plot.unlink()
        _without_pictures(STUDIES / study.name / "summary.md", study.name)
    page.write_text(with_tables(text), encoding="utf-8")


if __name__ == "__main__":
    main()
