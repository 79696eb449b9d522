"""Tables of published scores, next to measured ones and on their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.corruptions.c_bar_severities import C_BAR_KINDS, C_BAR_SUITES
from holdfast.published import published
from holdfast.published.paper_scores import COLUMNS, PaperScore, how, of_imagenet, paper_says, where
from holdfast.reporting.comparable import DataSet, Entry
from holdfast.reporting.formatting import NOT_MEASURED, number

LABELS = {
    "clean": "clean",
    "corruption_accuracy": "FAN accuracy",
    "retention": "FAN retention",
    "mce": "mCE",
    "mce_without_noise": "mCE w/o noise",
    "c_accuracy": "mCA",
    "c_bar_accuracy": "C-bar mCA",
    "mfr": "mFR",
    "imagenet_a": "ImageNet-A",
    "imagenet_r": "ImageNet-R",
    "fgsm": "FGSM",
    "pgd5": "PGD-5",
    "patch_fool": "Patch-Fool",
    "occlusion_random": "random occlusion",
    "occlusion_learned": "learned occlusion",
}

MORE_LABELS = {
    "cifar10": "CIFAR-10",
    "cifar10_c": "CIFAR-10-C",
    "cifar100": "CIFAR-100",
    "cifar100_c": "CIFAR-100-C",
    "cityscapes": "Cityscapes",
    "cityscapes_c": "Cityscapes-C",
    "city_retention": "retention",
    "coco": "COCO",
    "coco_c": "COCO-C",
    "coco_retention": "retention",
    "c_error": "error on C",
    "c_bar_error": "error on C-bar",
    **{kind.name: kind.name.replace("_", " ") for kind in C_BAR_KINDS},
}


@dataclass(frozen=True)
class PaperColumn:
    """A published score: its name, label and definition."""

    score: str
    label: str
    definition: str


@dataclass(frozen=True)
class PaperRow:
    """Published scores of an architecture or, with ``entry``, our measured ones."""

    model: str
    source: str
    cells: Sequence[str]
    entry: Entry | None = None


@dataclass(frozen=True)
class PaperTable:
    """Measured and published scores of the same architectures."""

    columns: Sequence[PaperColumn]
    rows: Sequence[PaperRow]


# segmentation and detection: the list in scores.json, and its columns with our scores of the same quantity
DENSE = {
    "cityscapes": (
        "segmentation",
        {"cityscapes": "clean", "cityscapes_c": "cityscapes_c", "city_retention": "cityscapes_c_retention"},
    ),
    "coco": ("detection", {"coco": "clean", "coco_c": "mpc_fan", "coco_retention": "rpc_fan"}),
}
CLASSES = {"segmentation": 19, "detection": 80}  # evaluated by Cityscapes (of 34 ids) and COCO (of 91 categories)


def paper_table(data: DataSet) -> PaperTable | None:
    """Build the table of measured and published scores of the same architectures; None without published ones.

    For Cityscapes and COCO all published rows are listed, since a segmenter's name is not its encoder's.
    """
    if (dense := _dense_table(data)) is not None:
        return dense
    if not of_imagenet(data.baseline.records):
        return None
    printed = {entry: paper_says(entry.run.architecture or "") for entry in data.models}
    scores = [
        score for score in COLUMNS.values() if any(score in row.values for rows in printed.values() for row in rows)
    ]
    rows = [row for entry, found in printed.items() if found for row in _rows(entry, found, scores)]
    return PaperTable([_column(score) for score in scores], rows) if rows else None


def _dense_table(data: DataSet) -> PaperTable | None:
    source = data.spec.partition(":")[0]
    classes = data.baseline.records.header.get("classes")
    task, columns = DENSE.get(source, ("", {}))
    if task != data.task or classes != CLASSES[task]:
        return None
    definitions = published("scores")["columns"]
    headings = [PaperColumn(score, MORE_LABELS[name], definitions[name]) for name, score in columns.items()]
    ours = [
        PaperRow(entry.name, "measured here", [_ours(entry, score) for score in columns.values()], entry)
        for entry in data.models
    ]
    printed: list[Mapping[str, Any]] = published("scores")[task]
    theirs = [PaperRow(name_of(row), where(row), [_format_score(row.get(name)) for name in columns]) for row in printed]
    return PaperTable(headings, [*ours, *theirs])


def name_of(row: Mapping[str, Any]) -> str:
    """Model of a published row, with its detector and training."""
    return ", ".join(filter(None, [str(row.get("name") or row["model"]), row.get("detector", ""), how(row)]))


def _format_score(value: Any) -> str:
    return number(float(value)) if value is not None else NOT_MEASURED


def _column(score: str) -> PaperColumn:
    name = next(column for column, measured in COLUMNS.items() if measured == score)
    return PaperColumn(score, LABELS[name], published("scores")["columns"][name])


def _rows(entry: Entry, printed: Sequence[PaperScore], scores: Sequence[str]) -> list[PaperRow]:
    ours = PaperRow(entry.name, "measured here", [_ours(entry, score) for score in scores], entry)
    shown = [row for row in printed if any(score in row.values for score in scores)]
    return [ours, *(PaperRow(_name(row), row.where, [_theirs(row, score) for score in scores]) for row in shown)]


def _ours(entry: Entry, score: str) -> str:
    return number(entry.summary[score].value) if score in entry.summary else NOT_MEASURED


def _theirs(row: PaperScore, score: str) -> str:
    return number(row.values[score]) if score in row.values else NOT_MEASURED


def _name(row: PaperScore) -> str:
    return f"{row.model}, {row.how}" if row.how else row.model


LOWER = ("mce", "mce_without_noise", "mfr", "c_error", "c_bar_error", *(kind.name for kind in C_BAR_KINDS))
# title, the lists of scores.json, and their columns
TABLES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("ImageNet and its variants", ("scores", "tora"), tuple(LABELS)),
    ("CIFAR", ("cifar",), ("cifar10", "cifar10_c", "cifar100", "cifar100_c")),
    *(
        (title, (rows,), ("c_error", "c_bar_error", *C_BAR_SUITES[suite]))
        for title, rows, suite in (
            ("ImageNet-C-bar, errors", "imagenet_c_bar", "imagenet-c-bar"),
            ("CIFAR-10-C-bar, errors", "cifar_c_bar", "cifar-c-bar"),
        )
    ),
    ("Cityscapes, segmentation", ("segmentation",), ("cityscapes", "cityscapes_c", "city_retention")),
    ("COCO, detection", ("detection",), ("coco", "coco_c", "coco_retention")),
)


@dataclass(frozen=True)
class PublishedColumn:
    """A published score: label, definition and direction."""

    label: str
    definition: str
    better: str


@dataclass(frozen=True)
class PublishedTable:
    """Published scores on one data set."""

    title: str
    columns: Sequence[PublishedColumn]
    rows: Sequence[tuple[str, str, Sequence[str]]]  # model, source, numbers


def published_tables() -> list[PublishedTable]:
    """Build one table per data set, in the papers' order; no row is preferred."""
    return [_table(title, lists, columns) for title, lists, columns in TABLES]


def _table(title: str, lists: Sequence[str], columns: Sequence[str]) -> PublishedTable:
    printed: list[Mapping[str, Any]] = [row for name in lists for row in published("scores")[name]]
    there = [column for column in columns if any(column in row for row in printed)]
    rows = [(name_of(row), where(row), [_number(row.get(column)) for column in there]) for row in printed]
    return PublishedTable(title, [_published_column(name) for name in there], rows)


def _published_column(name: str) -> PublishedColumn:
    label = LABELS.get(name) or MORE_LABELS[name]
    return PublishedColumn(label, published("scores")["columns"][name], "low" if name in LOWER else "high")


def _number(value: Any) -> str:
    return number(float(value)) if value is not None else NOT_MEASURED
