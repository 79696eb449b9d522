"""Scoring of classification: top-1 accuracy of every cell, from which all other scores follow."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from holdfast.cells import CellSpec
from holdfast.corruptions.severities import STANDARD
from holdfast.metrics.calibration import calibration_gaps, gap_of_means
from holdfast.metrics.flip_rate import flips, top5_distances
from holdfast.metrics.scoring.base import (
    CellScore,
    Compute,
    Key,
    Reference,
    ScoreDefinition,
    clean_score,
    column,
    condition_scores,
    corruption_scores,
    single_scores,
)
from holdfast.metrics.scoring.cue_conflict import KIND as CUE_CONFLICT
from holdfast.metrics.scoring.cue_conflict import cue_columns, cue_scores
from holdfast.metrics.scoring.domains import domain_columns, domain_scores
from holdfast.metrics.scoring.interface import RunningScore, Scoring
from holdfast.metrics.scoring.sequences import DISTANCES, FLIPS, sequence_formulas
from holdfast.records.records import CellRecord

BINS = 15  # of the calibration error
RIGHT, TOP_FIVE = "right", "top_five"  # top_five: the five best classes of every frame, for sequences only
MEASURE = CellScore("accuracy", "top-1 accuracy", "mCA", lambda means, cell: means[column(cell, RIGHT)], answers=RIGHT)


class ClassificationScoring(Scoring):
    """Top-1 accuracy, the mCE family, calibration, flip rates."""

    fields: Mapping[str, Any] = {
        "predictions": np.int32,
        "confidences": np.float32,
        "nll": np.float32,
        "top5": np.bool_,
    }
    per_image = "Percent of the images classified correctly"
    headline = ("clean", "mean_corruption_accuracy", "retention", "mce", "mean_c_bar_accuracy", "mfr")
    one_class = True
    curve_kinds = STANDARD
    running = RunningScore(
        "", lambda cell: np.array([cell.right.sum(), len(cell)]), lambda sums: sums[0] / sums[1]
    )  # accuracy

    def right(self, cell: CellRecord) -> np.ndarray:
        """Fraction of correct predictions of each image: 0 or 1 if it is predicted once."""
        targets = cell.targets.reshape(-1, *(1,) * (cell.predictions.ndim - 1))
        same = cell.predictions == targets
        return same.reshape(len(same), -1).mean(axis=1, dtype=np.float64) if len(same) else np.empty(0)

    def rows(self, cell: CellRecord) -> dict[str, np.ndarray]:
        """Id, frame, target, prediction, right, confidence, nll, top5."""
        times = cell.predictions.shape[1] if cell.predictions.ndim == 2 else 1
        targets, predictions = np.repeat(cell.targets, times), cell.predictions.reshape(-1)
        return {
            "id": np.repeat(cell.ids, times),
            "frame": np.tile(np.arange(times), len(cell)),
            "target": targets,
            "prediction": predictions,
            "right": predictions == targets,
            "confidence": cell.confidences.reshape(-1),
            "nll": cell.nll.reshape(-1),
            "top5": cell.top5.reshape(-1),
        }

    def remark(self, cell: CellRecord) -> str:
        """Range and deviation of an occlusion's accuracy over its masks; empty for other attacks."""
        if cell.predictions.ndim != 2:
            return ""
        each = 100 * (cell.predictions == cell.targets[:, None]).mean(axis=0)
        deviation = each.std(ddof=1) if len(each) > 1 else 0.0
        return f"{len(each)} masks: {each.min():.1f} to {each.max():.1f}, std {deviation:.1f}"

    def columns(self, cell: CellRecord) -> dict[str, np.ndarray]:
        """Flips and top-5 distances of sequences; correctness of others; top-5, NLL and ECE of clean images."""
        if cell.spec.family == "sequence":
            quantities = {FLIPS: flips(cell.predictions, kind=cell.spec.kind)}
            top_five = cell.fields.get(TOP_FIVE)  # missing for models with fewer than five classes
            if isinstance(top_five, np.ndarray) and top_five.shape[-1] == 5:
                quantities[DISTANCES] = top5_distances(top_five, kind=cell.spec.kind)
            return quantities
        right = self.right(cell)
        if cell.spec.family != "clean":
            return {RIGHT: right, **(cue_columns(cell) if cell.spec.kind == CUE_CONFLICT else {})}
        gaps = calibration_gaps(np.minimum(cell.confidences, 1.0), right, bins=BINS)  # float32 may round above 1
        return {
            RIGHT: right,
            **domain_columns(cell, right),
            "top5": cell.top5.astype(np.float64),
            "nll": cell.nll.astype(np.float64),
            **{f"gap{number}": gaps[:, number] for number in range(BINS)},
        }

    def cell_scores(self, header: Mapping[str, Any]) -> dict[str, CellScore]:
        """Top-1 accuracy of a cell."""
        return {"accuracy": MEASURE}

    def foreseen_columns(self, cells: Sequence[CellSpec]) -> Collection[Key]:
        """Flips and top-5 distances of sequences."""
        films = [cell.name for cell in cells if cell.family == "sequence"]
        return [column(name, quantity) for name in films for quantity in (FLIPS, DISTANCES)]

    def formulas(
        self,
        cells: Sequence[CellSpec],
        *,
        columns: Collection[Key],
        header: Mapping[str, Any],
        reference: Reference | None,
    ) -> list[ScoreDefinition]:
        """Clean scores, corruptions with the mCE family, sequences, conditions, other sets, attacks."""
        return [
            *clean_score(cells, MEASURE),
            *_clean_details(cells, classes=class_count(header)),
            *corruption_scores(cells, measure=MEASURE, reference=reference),
            *sequence_formulas(cells, columns=columns, reference=reference),
            *condition_scores(cells, MEASURE),
            *domain_scores(cells, columns=columns, header=header, name=MEASURE.name, label=MEASURE.label),
            *single_scores(cells, MEASURE),
            *cue_scores(cells, columns=columns),
        ]


def class_count(header: Mapping[str, Any]) -> int | None:
    """Number of classes of the records, if known."""
    classes = header.get("classes")
    return classes if isinstance(classes, int) else len(classes) if isinstance(classes, Sequence) else None


def _clean_details(cells: Sequence[CellSpec], *, classes: int | None) -> list[ScoreDefinition]:
    clean = next((cell.name for cell in cells if cell.family == "clean"), None)
    if clean is None:
        return []
    top5: Compute = lambda means: 100 * means[column(clean, "top5")]  # noqa: E731
    gaps = tuple(column(clean, f"gap{number}") for number in range(BINS))
    ece: Compute = lambda means: 100 * gap_of_means([means[gap] for gap in gaps])  # noqa: E731
    scores = [
        ScoreDefinition(
            "top5",
            "top-5",
            "%",
            "high",
            "target among the five best classes",
            top5,
            answers=column(clean, "top5"),
            reads=(column(clean, "top5"),),
        ),
        ScoreDefinition(
            "nll",
            "NLL",
            "nats",
            "low",
            "mean −log p(target), clean images",
            lambda means: means[column(clean, "nll")],
            reads=(column(clean, "nll"),),
        ),
        ScoreDefinition("ece", "ECE", "%", "low", f"calibration error in {BINS} bins, clean images", ece, reads=gaps),
    ]
    # with five classes or fewer every target is in the top five
    return [score for score in scores if score.name != "top5" or classes is None or classes > 5]


SCORING = ClassificationScoring()
