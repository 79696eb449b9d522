"""Classification: one class per image, scored by top-1 accuracy."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.metrics.accuracy import ranked
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
from holdfast.metrics.scoring.sequences import DISTANCES, FLIPS, sequence_formulas
from holdfast.records.cells import CellSpec
from holdfast.records.header import CLASSIFICATION
from holdfast.records.records import CellRecord
from holdfast.records.shard_files import Field, field_name
from holdfast.tasks.base import Answers, RunningScore
from holdfast.tasks.examples.base import ClassExamples, Examples

if TYPE_CHECKING:  # torch only where tensors are at hand: reports read records without it
    from torch import Tensor, nn

    from holdfast.attacks.criteria import Criterion

BINS = 15  # of the calibration error
IMAGENET = 1000
RIGHT, TOP_FIVE = "right", "top_five"  # top_five: the five best classes of every frame, for sequences only
MEASURE = CellScore("accuracy", "top-1 accuracy", "mCA", lambda means, cell: means[column(cell, RIGHT)], answers=RIGHT)


def class_names(count: int) -> Sequence[str]:
    """Default class names: ImageNet's for 1000 classes, else the class indices."""
    if count == IMAGENET:
        from timm.data import ImageNetInfo

        info = ImageNetInfo()
        return [info.index_to_description(number) for number in range(count)]
    return [str(number) for number in range(count)]


class Classification:
    """Classification: one class per image; a model outputs logits, (images, classes)."""

    name = CLASSIFICATION
    batched = True
    fields: Mapping[str, Any] = {
        "predictions": np.int32,
        "confidences": np.float32,
        "nll": np.float32,
        "top5": np.bool_,
    }
    per_image = "Percent of the images classified correctly"
    headline = ("clean", "mean_corruption_accuracy", "retention", "mce", "mean_c_bar_accuracy", "mfr")
    examples: Examples = ClassExamples()
    running = RunningScore(
        "", lambda cell: np.array([cell.right.sum(), len(cell)]), lambda sums: sums[0] / sums[1]
    )  # accuracy

    # data

    def truth(self, source: Any) -> np.ndarray:
        """Class index of every image, int64."""
        return np.asarray(source.targets, dtype=np.int64)

    def strata(self, source: Any) -> np.ndarray:
        """Class of every image: subsets are stratified by class."""
        return self.truth(source)

    def target(self, source: Any, index: int) -> int:
        """Class index of one image."""
        return int(source.targets[index])

    def steps(self, source: Any, wanted: Any, *, preset: str | None, stored_jpeg: bool) -> Any:
        """Preprocessing of the preset: crop, corrupt, then resize to the model's size."""
        from holdfast.evaluation.preprocessing import choose_preset, preprocessing

        prepared = getattr(source, "prepared", None)
        return preprocessing(
            preset or choose_preset(source, wanted),
            wanted,
            stored_jpeg=stored_jpeg,
            prepared=prepared,
            images=source,
        )

    # outputs of a model

    def check_model(self, answers: Answers, *, classes: int, restricted: bool, data: str) -> None:
        """Raise an error unless every view returns finite logits of the data's classes."""
        for view, logits in answers.items():
            if not hasattr(logits, "shape") or logits.ndim != 2 or len(logits) != 1:
                given = tuple(logits.shape) if hasattr(logits, "shape") else type(logits).__name__
                where = f" in view {view!r}" if view else ""
                raise HoldfastError(f"the model must return logits of shape (images, classes), got {given}{where}")
            if not bool(logits.max(dim=1).values.isfinite().all()):
                raise HoldfastError("the model must return finite logits, got NaN or infinity for a grey image")
        widths = {view: logits.shape[1] for view, logits in answers.items()}
        if len(set(widths.values())) != 1:
            raise HoldfastError(f"all views of a model must have the same number of classes, got {widths}")
        width = next(iter(widths.values()))
        if width != classes and not (restricted and width == IMAGENET):
            wanted = f"{classes} classes of {data!r}" + (" or the 1000 of ImageNet" if restricted else "")
            raise HoldfastError(f"the model must have the {wanted}, got {width}")

    def keep(
        self, answers: Answers, targets: Sequence[Any], *, cell: Any, repeats: int | None = None
    ) -> dict[str, Field]:
        """Predicted class, confidence, −log p of the target and top-5 correctness of every image; per view."""
        arrays: dict[str, Field] = {}
        labels = np.asarray(targets, dtype=np.int64)
        for view, logits in answers.items():
            values = logits.float().cpu().numpy()
            check_numbers(values, cell.name)
            fields = answer_fields(values, np.repeat(labels, repeats or 1))
            if cell.spec.family == "sequence" and values.shape[1] >= 5:
                fields[TOP_FIVE] = ranked(values, count=5).astype(np.int32)
            for name, array in fields.items():
                shape = (len(labels), repeats) if repeats is not None else (len(labels),)
                arrays[field_name(view, name)] = array.reshape(*shape, *array.shape[1:])
        return arrays

    def answer(self, output: "Tensor", *, classes: Sequence[str] | None, top: int) -> list[dict[str, Any]]:
        """Best classes of one image with their probabilities, for ``holdfast predict``."""
        found = output.float().softmax(dim=-1).topk(min(top, len(output)))
        names = classes or class_names(len(output))
        pairs = zip(found.indices.tolist(), found.values.tolist(), strict=True)
        return [{"class": names[number], "probability": value} for number, value in pairs]

    @property
    def goal(self) -> "Criterion":
        """Misclassification, by cross-entropy or the attack's own loss."""
        from holdfast.attacks.criteria import MISCLASSIFICATION

        return MISCLASSIFICATION

    # training

    def collate(self, targets: Sequence[Any]) -> "Tensor":
        """Class labels of a batch, int64 (B,)."""
        import torch

        return torch.tensor(list(targets), dtype=torch.int64)

    def loss(self, output: "Tensor", targets: "Tensor") -> "Tensor":
        """Cross-entropy of hard or soft targets, mean over the batch."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(output, targets)

    def tally(self, output: "Tensor", targets: "Tensor") -> "Tensor":
        """Number of correct predictions and of images, (2,)."""
        import torch

        if output is None:
            return torch.zeros(2, dtype=torch.int64)
        right = (output.argmax(dim=1) == targets).sum()
        return torch.stack([right, torch.full_like(right, len(targets))])

    def validation_scores(self, counts: "Tensor") -> dict[str, float]:
        """Top-1 accuracy in percent."""
        right, total = counts.tolist()
        return {"top1": 100 * right / max(total, 1)}

    def build(self, recipe: Any, *, classes: int, size: Any) -> "nn.Module":
        """Build a timm model with a head for these classes."""
        from holdfast.training.initialize import start_model

        return start_model(recipe, classes=classes, size=size)

    def transforms(self, recipe: Any, image: Any) -> tuple[Any, Any]:
        """Transforms of the image that keep its class."""
        from holdfast.training.augment.classification import training_transform, validation_transform

        return ImageOnly(training_transform(recipe, image)), ImageOnly(validation_transform(image))

    def mixer(self, recipe: Any, *, classes: int) -> Any:
        """Mixup, CutMix and label smoothing of a batch."""
        from holdfast.training.augment.classification import batch_mixer

        return batch_mixer(recipe, classes=classes)

    # scores from records

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


@dataclass(frozen=True)
class ImageOnly:
    """Applies a transform to the picture only."""

    transform: Callable[[Any], Any]

    def __call__(self, picture: Any, target: Any) -> tuple[Any, Any]:
        """Return the transformed picture and its class."""
        return self.transform(picture), target


def check_numbers(logits: np.ndarray, cell: str) -> None:
    """Raise an error for NaN and infinity that names the cell; −∞ is allowed for excluded classes."""
    bad = int((~np.isfinite(logits.max(axis=1))).sum())
    if bad:
        raise HoldfastError(
            f"the model must return finite logits, got NaN or infinity for {bad} of {len(logits)} images in {cell}; "
            "nothing was recorded for them"
        )


def answer_fields(logits: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
    """Recorded fields of logits (n, classes) for targets (n,); target −1 for unknown."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(axis=1))
    known = targets >= 0
    place = np.where(known, targets, 0)[:, None]
    own = np.take_along_axis(shifted, place, axis=1)  # n 1
    earlier = np.arange(logits.shape[1]) < place
    rank = ((shifted > own) | ((shifted == own) & earlier)).sum(axis=1)  # ties go to the lower class, as in argmax
    values = {
        "predictions": logits.argmax(axis=1),
        "confidences": np.exp(-log_sum),
        "nll": np.where(known, log_sum - own[:, 0], np.nan),  # NaN, because an unknown target has no likelihood
        "top5": (rank < 5) & known,
    }
    return {name: values[name].astype(kind) for name, kind in Classification.fields.items()}


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


TASK = Classification()
