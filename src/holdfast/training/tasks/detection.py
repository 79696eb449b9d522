"""Training of detectors: their own losses, joint flips and crops, F1."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.errors import HoldfastError
from holdfast.metrics.average_precision import match_image
from holdfast.models.detector import Detector
from holdfast.tasks.base import Training
from holdfast.training.augment.detection import as_tensors, object_transform
from holdfast.training.initialize import start_model


class DetectionTraining(Training):
    """The losses that a detector returns; validated by F1 at score and IoU ½."""

    def loss(self, output: Mapping[str, Tensor], targets: Any) -> Tensor:
        """Raise an error: detectors compute their own losses, for the objective ``detection``."""
        raise HoldfastError("objective.name must be detection for data with objects")

    def tally(self, output: Sequence[Mapping[str, Tensor]] | None, targets: Sequence[Any] | None) -> Tensor:
        """Number of objects found (score and IoU from ½), detections and objects, (3,)."""
        counts = torch.zeros(3, dtype=torch.int64)
        for found, target in zip(output or (), targets or (), strict=True):
            counts += torch.tensor(match_image(_single(found, target), 0))
        return counts

    def validation_scores(self, counts: Tensor) -> dict[str, float]:
        """F1 of all objects in percent; ``holdfast evaluate`` computes the average precision."""
        found, detections, objects = counts.tolist()
        return {"f1": 200 * found / max(detections + objects, 1)}

    def build(self, recipe: Any, *, classes: int, size: Any) -> nn.Module:
        """Build a ``detector`` with the encoder and settings of the recipe's ``model.kwargs``."""
        if size is not None:
            raise HoldfastError(f"data.size must be null for detection, see min_size of the detector, got {size}")
        model = start_model(recipe, classes=classes, size=None)
        if not isinstance(model, Detector):
            raise HoldfastError(f"model.name must be detector for data with objects, got {recipe.name!r}")
        return model

    def transforms(self, recipe: Any, image: Any) -> tuple[Any, Any]:
        """Joint flips and crops of image and objects; the detector itself chooses the size."""
        of_classification = ("mixup", "cutmix", "erasing", "rand_augment", "color_jitter", "vflip", "smoothing")
        for name in of_classification:
            if getattr(recipe, name):
                raise HoldfastError(
                    f"augment.{name} is a setting of classification: omit it for detection, got {getattr(recipe, name)}"
                )
        return object_transform(recipe), as_tensors

    def shown_size(self, recipe: Any, image: Any, model: nn.Module) -> tuple[int, int] | None:
        """Fixed input size of the detector, if it has one."""
        settings = getattr(model, "settings", None)
        return getattr(settings, "fixed_size", None)


def _single(found: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, Any]:
    """Detections and training target of one image, in the form that `match_image` takes."""
    count = len(target["boxes"])
    return {
        **{name: (found[name].float().cpu().numpy(),) for name in ("boxes", "labels", "scores")},
        "true_boxes": (target["boxes"].cpu().numpy(),),
        "true_labels": (target["labels"].cpu().numpy(),),
        "true_crowds": (np.zeros(count, np.uint8),),
    }


TRAINING = DetectionTraining()
