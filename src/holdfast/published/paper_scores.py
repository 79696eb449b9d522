"""Published scores of an architecture under the names of our scores."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.corruptions.c_bar_severities import C_BAR_SUITES
from holdfast.published import published
from holdfast.registry import model_spec

if TYPE_CHECKING:
    from holdfast.records.records import Records

# the papers' columns and the scores of ours that measure the same
COLUMNS = {
    "clean": "clean",
    "corruption_accuracy": "fan_accuracy",
    "retention": "fan_retention",
    "mce": "mce",
    "mce_without_noise": "mce_without_noise",
    "c_accuracy": "mean_corruption_accuracy",
    "c_bar_accuracy": "mean_c_bar_accuracy",
    "mfr": "mfr",
    "imagenet_a": "imagenet_a",
    "imagenet_r": "imagenet_r",
    "fgsm": "attack/fgsm",
    "pgd5": "attack/pgd5",
    "patch_fool": "attack/patch-fool",
    "occlusion_random": "attack/occlusion-random",
    "occlusion_learned": "attack/occlusion-learned",
}


@dataclass(frozen=True)
class PaperScore:
    """One row of a paper's table: model, source, setting and scores."""

    model: str
    where: str
    how: str
    values: Mapping[str, float]

    def __str__(self) -> str:
        return f"{self.where} prints{f' ({self.how})' if self.how else ''}"


def paper_says(architecture: str) -> list[PaperScore]:
    """All published scores of an architecture; no row is preferred, since papers disagree about the same model."""
    tables = published("scores")
    found = [_headline(row) for row in (*tables["scores"], *tables["tora"])]
    found += [_by_kind(row, "ce", mean="mce") for row in tables["corruption_errors"]]
    found += [_by_kind(row, "accuracy", mean="fan_accuracy") for row in tables["corruption_accuracies"]]
    found += [_by_error(row) for row in tables["imagenet_c_bar"]]
    return [row for row in found if row.model == architecture]


def architecture_of(header: Mapping[str, Any]) -> str:
    """The timm name of the model in a header of records: NAME of ``timm:NAME@FILE``."""
    return model_spec(str(header.get("architecture") or header.get("model", ""))).architecture


def of_imagenet(records: "Records") -> bool:
    """Whether records have the classes of the published scores."""
    return records.header.get("preset") == "imagenet" and records.header.get("classes") in (1000, 200)


def _headline(row: Mapping[str, Any]) -> PaperScore:
    values = {name: float(row[column]) for column, name in COLUMNS.items() if column in row}
    return PaperScore(row["model"], where(row), how(row), values)


def _by_kind(row: Mapping[str, Any], prefix: str, *, mean: str) -> PaperScore:
    values = {mean: float(row.get("mce", row.get("mean")))}
    values |= {f"{prefix}/{kind}": float(value) for kind, value in row["values"].items()}
    return PaperScore(row["model"], where(row), how(row), values)


def _by_error(row: Mapping[str, Any]) -> PaperScore:
    """Of C-bar, which prints errors: 100 minus them."""
    names = {"c_error": "mean_corruption_accuracy", "c_bar_error": "mean_c_bar_accuracy"}
    names |= {kind: f"accuracy/{kind}" for kind in C_BAR_SUITES["imagenet-c-bar"]}
    values = {score: round(100 - float(row[column]), 2) for column, score in names.items()}
    return PaperScore(row["model"], where(row), how(row), values)


def where(row: Mapping[str, Any]) -> str:
    """The paper and its table."""
    return f"{row['source']}, {row['table']}"


def how(row: Mapping[str, Any]) -> str:
    """Training, pretraining, resolution, λ and prediction of a row, as far as given."""
    words = {"trained_with": "trained with {}", "pretrained_on": "from {}", "size": "at {} px", "lambda": "λ = {}"}
    words["view"] = "prediction {}"
    return ", ".join(phrase.format(row[key]) for key, phrase in words.items() if key in row)
