"""Training of classifiers: cross-entropy, mixup and CutMix, top-1 accuracy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from holdfast.tasks.base import Training
from holdfast.training.augment.classification import batch_mixer, training_transform, validation_transform
from holdfast.training.initialize import start_model


class ClassificationTraining(Training):
    """Cross-entropy of hard or soft targets; validated by top-1 accuracy."""

    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy of hard or soft targets, mean over the batch."""
        return cross_entropy(output, targets)

    def tally(self, output: Tensor, targets: Tensor) -> Tensor:
        """Number of correct predictions and of images, (2,)."""
        if output is None:
            return torch.zeros(2, dtype=torch.int64)
        right = (output.argmax(dim=1) == targets).sum()
        return torch.stack([right, torch.full_like(right, len(targets))])

    def validation_scores(self, counts: Tensor) -> dict[str, float]:
        """Top-1 accuracy in percent."""
        right, total = counts.tolist()
        return {"top1": 100 * right / max(total, 1)}

    def build(self, recipe: Any, *, classes: int, size: Any) -> nn.Module:
        """Build a timm model with a head for these classes."""
        return start_model(recipe, classes=classes, size=size)

    def transforms(self, recipe: Any, image: Any) -> tuple[Any, Any]:
        """Transforms of the image that keep its class."""
        return ImageOnly(training_transform(recipe, image)), ImageOnly(validation_transform(image))

    def mixer(self, recipe: Any, *, classes: int) -> Any:
        """Mixup, CutMix and label smoothing of a batch."""
        return batch_mixer(recipe, classes=classes)


@dataclass(frozen=True)
class ImageOnly:
    """Applies a transform to the picture only."""

    transform: Callable[[Any], Any]

    def __call__(self, picture: Any, target: Any) -> tuple[Any, Any]:
        """Return the transformed picture and its class."""
        return self.transform(picture), target


TRAINING = ClassificationTraining()
