"""All that the papers print, as tables of their own: never in a row with what was measured here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.metrics.papers import where
from holdfast.published import published
from holdfast.reporting.sections.papers import LABELS, MORE_LABELS, name_of
from holdfast.reporting.text import NOT_MEASURED, number

LOWER = ("mce", "mce_without_noise", "mfr")
# title, the lists of scores.json, and their columns
TABLES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("ImageNet and its variants", ("scores", "tora"), tuple(LABELS)),
    ("CIFAR", ("cifar",), ("cifar10", "cifar10_c", "cifar100", "cifar100_c")),
    ("Cityscapes, segmentation", ("segmentation",), ("cityscapes", "cityscapes_c", "city_retention")),
    ("COCO, detection", ("detection",), ("coco", "coco_c", "coco_retention")),
)


@dataclass(frozen=True)
class PublishedColumn:
    """One printed score."""

    label: str
    definition: str
    better: str


@dataclass(frozen=True)
class PublishedTable:
    """What papers print about one data set."""

    title: str
    columns: Sequence[PublishedColumn]
    rows: Sequence[tuple[str, str, Sequence[str]]]  # model, source, numbers


def published_tables() -> list[PublishedTable]:
    """One table per data set, in the papers' order; no row is preferred."""
    return [_table(title, lists, columns) for title, lists, columns in TABLES]


def _table(title: str, lists: Sequence[str], columns: Sequence[str]) -> PublishedTable:
    printed: list[Mapping[str, Any]] = [row for name in lists for row in published("scores")[name]]
    there = [column for column in columns if any(column in row for row in printed)]
    rows = [(name_of(row), where(row), [_number(row.get(column)) for column in there]) for row in printed]
    return PublishedTable(title, [_column(name) for name in there], rows)


def _column(name: str) -> PublishedColumn:
    label = LABELS.get(name) or MORE_LABELS[name]
    return PublishedColumn(label, published("scores")["columns"][name], "low" if name in LOWER else "high")


def _number(value: Any) -> str:
    return number(float(value)) if value is not None else NOT_MEASURED
