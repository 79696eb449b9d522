"""The scores that the papers print: the one reader of ``scores.json``, as tables and under the names of our scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from holdfast.corruptions.c_bar_severities import C_BAR_SUITES
from holdfast.published import published
from holdfast.records.header import CLASSIFICATION
from holdfast.registry import model_spec

# the lists of scores.json with models that are classifiers of ImageNet
_IMAGENET = ("scores", "tora", "corruption_errors", "corruption_accuracies", "imagenet_c_bar")
# lists with a value per corruption: the key of their mean, and our scores of the mean and of a kind
_BY_KIND = {"corruption_errors": ("mce", "mce", "ce"), "corruption_accuracies": ("mean", "fan_accuracy", "accuracy")}


@dataclass(frozen=True)
class PaperColumn:
    """A column of the papers' tables.

    Attributes:
        name: its key in ``scores.json``.
        label: its heading.
        score: our score of the same quantity, if there is one.
        better: ``high`` or ``low``.
        error: whether the papers print the error, 100 minus our score.
    """

    name: str
    label: str
    score: str = ""
    better: Literal["high", "low"] = "high"
    error: bool = False

    @property
    def definition(self) -> str:
        """What is printed, in words."""
        return str(published("scores")["columns"][self.name])


def _errors(suite: str) -> tuple[PaperColumn, ...]:
    """The columns of C-bar's tables, which print errors."""
    return (
        PaperColumn("c_error", "error on C", "mean_corruption_accuracy", "low", error=True),
        PaperColumn("c_bar_error", "error on C-bar", "mean_c_bar_accuracy", "low", error=True),
        *(
            PaperColumn(kind, kind.replace("_", " "), f"accuracy/{kind}", "low", error=True)
            for kind in C_BAR_SUITES[suite]
        ),
    )


@dataclass(frozen=True)
class PaperScore:
    """One row of a paper's table.

    Attributes:
        model: the architecture, as timm names it; empty if it is not one of ours.
        name: the model with its training, as tables show it.
        where: the paper and its table.
        how: training, pretraining, resolution, λ and prediction, as far as printed.
        printed: the numbers by the names of their columns.
        values: the numbers under the names of our scores.
    """

    model: str
    name: str
    where: str
    how: str
    printed: Mapping[str, float]
    values: Mapping[str, float]

    def __str__(self) -> str:
        return f"{self.where} prints{f' ({self.how})' if self.how else ''}"


@dataclass(frozen=True)
class PaperTable:
    """The printed scores on one data set, in the papers' order; no row is preferred, since papers disagree.

    Attributes:
        title: its heading.
        source: how the specs of its data begin; empty for records of ImageNet's classes.
        lists: its rows, by the lists of ``scores.json``.
        columns: all columns that a row may have.
        task: the task of its models.
        classes: number of classes that are scored, if the data can be read with others.
    """

    title: str
    source: str
    lists: Sequence[str]
    columns: Sequence[PaperColumn]
    task: str = CLASSIFICATION
    classes: int | None = None

    @cached_property
    def rows(self) -> list[PaperScore]:
        """The printed rows."""
        return [row for name in self.lists for row in _rows(name, self.columns)]

    def fits(self, header: Mapping[str, Any]) -> bool:
        """Whether records with this header have the same data, task and classes."""
        if not self.source:
            return of_imagenet(header)
        same_data = str(header.get("data", "")).startswith(self.source)
        same_task = header.get("task", CLASSIFICATION) == self.task
        return same_data and same_task and self.classes in (None, header.get("classes"))


TABLES = (
    PaperTable(
        "ImageNet and its variants",
        "",
        ("scores", "tora"),
        (
            PaperColumn("clean", "clean", "clean"),
            PaperColumn("corruption_accuracy", "FAN accuracy", "fan_accuracy"),
            PaperColumn("retention", "FAN retention", "fan_retention"),
            PaperColumn("mce", "mCE", "mce", "low"),
            PaperColumn("mce_without_noise", "mCE w/o noise", "mce_without_noise", "low"),
            PaperColumn("c_accuracy", "mCA", "mean_corruption_accuracy"),
            PaperColumn("c_bar_accuracy", "C-bar mCA", "mean_c_bar_accuracy"),
            PaperColumn("mfr", "mFR", "mfr", "low"),
            PaperColumn("imagenet_a", "ImageNet-A", "imagenet_a"),
            PaperColumn("imagenet_r", "ImageNet-R", "imagenet_r"),
            PaperColumn("fgsm", "FGSM", "attack/fgsm"),
            PaperColumn("pgd5", "PGD-5", "attack/pgd5"),
            PaperColumn("patch_fool", "Patch-Fool", "attack/patch-fool"),
            PaperColumn("occlusion_random", "random occlusion", "attack/occlusion-random"),
            PaperColumn("occlusion_learned", "learned occlusion", "attack/occlusion-learned"),
        ),
    ),
    PaperTable(
        "CIFAR",
        "cifar",
        ("cifar",),
        (
            PaperColumn("cifar10", "CIFAR-10"),
            PaperColumn("cifar10_c", "CIFAR-10-C"),
            PaperColumn("cifar100", "CIFAR-100"),
            PaperColumn("cifar100_c", "CIFAR-100-C"),
        ),
    ),
    PaperTable("ImageNet-C-bar, errors", "", ("imagenet_c_bar",), _errors("imagenet-c-bar")),
    PaperTable("CIFAR-10-C-bar, errors", "cifar", ("cifar_c_bar",), _errors("cifar-c-bar")),
    PaperTable(
        "Cityscapes, segmentation",
        "cityscapes",
        ("segmentation",),
        (
            PaperColumn("cityscapes", "Cityscapes", "clean"),
            PaperColumn("cityscapes_c", "Cityscapes-C", "cityscapes_c"),
            PaperColumn("city_retention", "retention", "cityscapes_c_retention"),
        ),
        task="segmentation",
        classes=19,  # of 34 ids
    ),
    PaperTable(
        "COCO, detection",
        "coco",
        ("detection",),
        (
            PaperColumn("coco", "COCO", "clean"),
            PaperColumn("coco_c", "COCO-C", "mpc_fan"),
            PaperColumn("coco_retention", "retention", "rpc_fan"),
        ),
        task="detection",
        classes=80,  # of 91 categories
    ),
)
IMAGENET = TABLES[0]


def paper_says(architecture: str) -> list[PaperScore]:
    """All published scores of an architecture; no row is preferred, since papers disagree about the same model."""
    columns = {"imagenet_c_bar": _errors("imagenet-c-bar")}
    found = (row for name in _IMAGENET for row in _rows(name, columns.get(name, IMAGENET.columns)))
    return [row for row in found if row.model == architecture]


def architecture_of(header: Mapping[str, Any]) -> str:
    """The timm name of the model in a header of records: NAME of ``timm:NAME@FILE``."""
    return model_spec(str(header.get("architecture") or header.get("model", ""))).architecture


def of_imagenet(header: Mapping[str, Any]) -> bool:
    """Whether records with this header have ImageNet's classes."""
    return header.get("preset") == "imagenet" and header.get("classes") in (1000, 200)


def _rows(name: str, columns: Sequence[PaperColumn]) -> list[PaperScore]:
    return [_row(row, columns, name) for row in published("scores")[name]]


def _row(row: Mapping[str, Any], columns: Sequence[PaperColumn], name: str) -> PaperScore:
    printed = {column.name: float(row[column.name]) for column in columns if column.name in row}
    values = {
        column.score: round(100 - printed[column.name], 2) if column.error else printed[column.name]
        for column in columns
        if column.score and column.name in printed
    }
    if name in _BY_KIND:
        key, mean, kind = _BY_KIND[name]
        values = {mean: float(row[key]), **{f"{kind}/{each}": float(value) for each, value in row["values"].items()}}
    model, how = str(row.get("model", "")), _how(row)
    parts = [str(row.get("name") or model), row.get("detector", ""), how]
    return PaperScore(model, ", ".join(filter(None, parts)), f"{row['source']}, {row['table']}", how, printed, values)


def _how(row: Mapping[str, Any]) -> str:
    words = {"trained_with": "trained with {}", "pretrained_on": "from {}", "size": "at {} px", "lambda": "λ = {}"}
    words["view"] = "prediction {}"
    return ", ".join(phrase.format(row[key]) for key, phrase in words.items() if key in row)
