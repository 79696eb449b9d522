"""What the papers print of the architectures in a report, beside what was measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.metrics.papers import COLUMNS, Printed, of_imagenet, paper_says
from holdfast.published import published
from holdfast.reporting.entries import DataSet, Entry
from holdfast.reporting.text import NOT_MEASURED, number

LABELS = {
    "clean": "clean",
    "corruption_accuracy": "FAN accuracy",
    "retention": "FAN retention",
    "mce": "mCE",
    "mce_without_noise": "mCE w/o noise",
    "mfr": "mFR",
    "imagenet_a": "ImageNet-A",
    "imagenet_r": "ImageNet-R",
    "fgsm": "FGSM",
    "pgd5": "PGD-5",
    "patch_fool": "Patch-Fool",
    "occlusion_random": "random occlusion",
    "occlusion_learned": "learned occlusion",
}


@dataclass(frozen=True)
class PaperColumn:
    """One printed score."""

    score: str
    label: str
    definition: str


@dataclass(frozen=True)
class PaperRow:
    """What a paper prints of one architecture, or (``entry``) what we measured of it."""

    model: str
    source: str
    cells: Sequence[str]
    entry: Entry | None = None


@dataclass(frozen=True)
class PaperTable:
    """Ours and theirs."""

    columns: Sequence[PaperColumn]
    rows: Sequence[PaperRow]


def paper_table(data: DataSet) -> PaperTable | None:
    """Ours and the papers' scores of the same architectures; none where nobody printed any for these classes."""
    if not of_imagenet(data.baseline.records):
        return None
    printed = {entry: paper_says(entry.run.architecture or "") for entry in data.models}
    scores = [
        score for score in COLUMNS.values() if any(score in row.values for rows in printed.values() for row in rows)
    ]
    rows = [row for entry, found in printed.items() if found for row in _rows(entry, found, scores)]
    return PaperTable([_column(score) for score in scores], rows) if rows else None


def _column(score: str) -> PaperColumn:
    name = next(column for column, measured in COLUMNS.items() if measured == score)
    return PaperColumn(score, LABELS[name], published("scores")["columns"][name])


def _rows(entry: Entry, printed: Sequence[Printed], scores: Sequence[str]) -> list[PaperRow]:
    ours = PaperRow(entry.name, "measured here", [_ours(entry, score) for score in scores], entry)
    shown = [row for row in printed if any(score in row.values for score in scores)]
    return [ours, *(PaperRow(_name(row), row.where, [_theirs(row, score) for score in scores]) for row in shown)]


def _ours(entry: Entry, score: str) -> str:
    return number(entry.summary[score].value) if score in entry.summary else NOT_MEASURED


def _theirs(row: Printed, score: str) -> str:
    return number(row.values[score]) if score in row.values else NOT_MEASURED


def _name(row: Printed) -> str:
    return f"{row.model}, {row.how}" if row.how else row.model
