"""Makes the tables and plots of docs/results/*.md again from studies/*/results: ``python docs/make_results.py``.

The tables stand between ``<!-- STUDY: PART -->`` and ``<!-- end -->``; everything else on the page is written by hand.
"""

import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

from holdfast.data.camvid import CLASSES
from holdfast.studies.dense_tables import alive_table, breaks_table, classes_table, cost_table, kinds_table
from holdfast.studies.figures import Results
from holdfast.studies.page import claims_table, difference_table, judged_claims, markdown_table, write_page
from holdfast.studies.plan import Study, load_study
from holdfast.studies.results import all_results

HERE = Path(__file__).parent
PAGE, IMAGES, STUDIES = HERE / "results" / "cifar10.md", HERE / "images" / "results", HERE.parent / "studies"
PAGES = tuple(HERE / "results" / name for name in ("cifar10.md", "detection.md", "camvid.md"))
BLOCK = re.compile(r"<!-- (?P<study>[\w/]+): (?P<part>\w+) -->\n.*?<!-- end -->", re.DOTALL)

# how the data were named on the command line; they are part of what a result is known by
TRAIN, HELD_OUT, TEST = (
    "npz:data/cifar10_train.npz[0:45000]",
    "npz:data/cifar10_train.npz[45000:50000]",
    "npz:data/cifar10_test.npz",
)
PICTURES = "*Pictures are not kept here: `holdfast study` with `--table-only` draws them from `results/`.*"
PARTS: dict[str, Callable[[Study, Results], str]] = {
    "table": lambda study, results: markdown_table(results),
    "differences": lambda study, results: difference_table(results),
    "claims": lambda study, results: claims_table(judged_claims(study, results), results),
    "kinds": lambda study, results: kinds_table(results),
    "breaks": lambda study, results: breaks_table(results),
    "classes": lambda study, results: classes_table(results, names=CLASSES),
    "alive": lambda study, results: alive_table(results),
    "cost": lambda study, results: cost_table(results),
}


def with_tables(text: str) -> str:
    """The page with every table made again."""

    def block(found: re.Match[str]) -> str:
        study, results = finished_study(found["study"])
        table = PARTS[found["part"]](study, results) if results else "*Not run yet.*"
        return f"{found[0].partition(chr(10))[0]}\n\n{table}\n\n<!-- end -->"

    return BLOCK.sub(block, text)


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
    for name in dict.fromkeys(found["study"] for found in BLOCK.finditer(text)):
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
