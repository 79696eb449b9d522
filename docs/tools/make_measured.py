"""Puts the figures of docs/measured/*.csv into the pages that show them: ``python docs/tools/make_measured.py``.

These are figures whose runs are not in the repository, as they were printed when they were measured. The tables of
TORA on digits come from the commands at the end of that section of tora.md and from make_tora_tables.py, the alignment
errors from measure_adversary.py on runs of cifar10/main and cifar10/afat_weight. What comes from a benchmark is in
perf/results, what comes from a study in studies/*/results.
"""

import csv
import re
from pathlib import Path

from holdfast.io.markdown import DASH, table

HERE = Path(__file__).parents[1]
BLOCK = re.compile(r"<!-- (?P<file>measured/[\w.]+) -->\n.*?<!-- end -->", re.DOTALL)


def with_figures(text: str) -> str:
    """A page with every such table made again."""
    return BLOCK.sub(
        lambda found: f"<!-- {found['file']} -->\n\n{table_of(HERE / found['file'])}\n\n<!-- end -->", text
    )


def table_of(path: Path) -> str:
    """A file as Markdown."""
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = ([cell or DASH for cell in row] for row in csv.reader(file))
    return table(head, rows)


def pages() -> list[Path]:
    """Those that show such figures."""
    return [page for page in sorted(HERE.rglob("*.md")) if BLOCK.search(page.read_text(encoding="utf-8"))]


if __name__ == "__main__":
    for page in pages():
        page.write_text(with_figures(page.read_text(encoding="utf-8")), encoding="utf-8")
