"""Records of a whole benchmark for the exports, and readers of their formats."""

import csv
import io
import re

import numpy as np

from holdfast.corruptions import EXTRA, STANDARD
from tests.records.making_records import cell, corrupted, records, share

HOSTILE = [
    "evil|name",
    "a\nb\r\nc",
    "\x1b[31mred\x1b[0m",
    "\\textbf{x} & $y$ % # ^ ~ _ {",
    "[optional] *starred*",
    "*",
    "<script>alert(1)</script>",
    "=HYPERLINK(1)",
    "@SUM(A1)",
    '"quoted", and `ticked`',
    "[bold]rich[/bold]",
    "\u202eturned",
    "名前 é",
    "_x_ __y__ fan_tiny",
    "x" * 300,
]


def benchmark(model="timm:fan_base_16_p4_hybrid", *, seed=0, drop=(), extra=False, **header):
    rng = np.random.default_rng(seed)
    kinds = (*STANDARD, *EXTRA) if extra else STANDARD
    errors = {kind: np.sort(rng.integers(5, 60, 5) / 100).tolist() for kind in kinds}
    cells = {"clean": cell(share(0.1, count=100)), **corrupted(errors, count=100), "pgd5": cell(share(0.6, count=100))}
    return records({name: held for name, held in cells.items() if name not in drop}, model=model, **header)


def by_score(text):
    return {(row["model"], row["score"]): row for row in csv.DictReader(io.StringIO(text))}


def markdown_tables(text):
    """Every pipe table as a list of rows of cells; an escaped pipe is no border."""
    tables, rows = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([part.strip() for part in re.split(r"(?<!\\)\|", line)[1:-1]])
        elif rows:
            tables.append(rows)
            rows = []
    return tables


def tabulars(text):
    return re.findall(r"\\begin\{tabular\}\{(\w+)\}\n(.*?)\\end\{tabular\}", text, re.DOTALL)


def latex_rows(body):
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    return [re.split(r"(?<!\\)&", line.removesuffix(r"\\")) for line in lines]


def columns_of(cells):
    spans = [re.match(r"\s*\\multicolumn\{(\d+)\}", text) for text in cells]
    return sum(int(span[1]) if span else 1 for span in spans)
