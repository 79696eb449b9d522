"""Evaluation of classifiers: logits of shape (images, classes), one class per image."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.attacks.criteria import MISCLASSIFICATION, Criterion
from holdfast.errors import HoldfastError
from holdfast.evaluation.preprocessing import choose_preset, preprocessing
from holdfast.metrics.accuracy import ranked
from holdfast.metrics.scoring.classification import SCORING, TOP_FIVE
from holdfast.records.shard_files import Field, field_name
from holdfast.tasks.base import Answers, Evaluation

IMAGENET = 1000


class ClassificationEvaluation(Evaluation):
    """One class per image, of the highest logit."""

    standard_attack = "pgd5"
    needs = "images with a class, such as folder:DIR"
    lists_answers = True

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
        prepared = getattr(source, "prepared", None)
        return preprocessing(
            preset or choose_preset(source, wanted),
            wanted,
            stored_jpeg=stored_jpeg,
            prepared=prepared,
            images=source,
        )

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
            hint = "; map its outputs onto these classes with --class-map FILE" if width > classes else ""
            raise HoldfastError(f"the model must have the {wanted}, got {width}{hint}")

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

    def answer(self, output: Tensor, *, classes: Sequence[str] | None, top: int) -> list[dict[str, Any]]:
        """Best classes of one image with their probabilities, for ``holdfast predict``."""
        found = output.float().softmax(dim=-1).topk(min(top, len(output)))
        names = classes or class_names(len(output))
        pairs = zip(found.indices.tolist(), found.values.tolist(), strict=True)
        return [{"class": names[number], "probability": value} for number, value in pairs]

    @property
    def goal(self) -> Criterion:
        """Misclassification, by cross-entropy or the attack's own loss."""
        return MISCLASSIFICATION

    def collate(self, targets: Sequence[Any]) -> Tensor:
        """Class labels of a batch, int64 (B,)."""
        return torch.tensor(list(targets), dtype=torch.int64)

    def check_protocol(self, protocol: Any) -> None:
        """Raise an error for sliding windows."""
        if protocol.window is not None or protocol.stride is not None:
            raise HoldfastError("window and stride are settings of segmentation: omit them for classification")


def class_names(count: int) -> Sequence[str]:
    """Default class names: ImageNet's for 1000 classes, else the class indices."""
    if count == IMAGENET:
        from timm.data import ImageNetInfo

        info = ImageNetInfo()
        return [info.index_to_description(number) for number in range(count)]
    return [str(number) for number in range(count)]


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
    return {name: values[name].astype(kind) for name, kind in SCORING.fields.items()}


EVALUATION = ClassificationEvaluation()
