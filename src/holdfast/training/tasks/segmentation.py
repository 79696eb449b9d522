"""Training of segmenters: pixel-wise cross-entropy, joint augmentation, mIoU."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.methods.segmentation_loss import pixel_cross_entropy
from holdfast.metrics.iou import IGNORED, mean_iou, pixel_accuracy
from holdfast.tasks.base import Training
from holdfast.training.augment.segmentation import pair_transforms
from holdfast.training.initialize import start_segmenter


class SegmentationTraining(Training):
    """Cross-entropy over the labelled pixels; validated by mIoU."""

    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy, averaged over the labelled pixels."""
        return pixel_cross_entropy(output, targets)

    def tally(self, output: Any, targets: Any) -> Tensor:
        """Pixel counts per class: true, predicted and both, (3, 256)."""
        if output is None:
            return torch.zeros(3, IGNORED + 1, dtype=torch.int64)
        labelled = targets != IGNORED
        seen, known = output.argmax(dim=1)[labelled], targets[labelled]
        counted = [torch.bincount(values, minlength=IGNORED + 1) for values in (known, seen, known[seen == known])]
        return torch.stack(counted)

    def validation_scores(self, counts: Tensor) -> dict[str, float]:
        """mIoU and pixel accuracy in percent."""
        pooled = counts.cpu().numpy()
        scores = {"miou": float(mean_iou(pooled)), "pixel_accuracy": float(pixel_accuracy(pooled))}
        return {name: 100 * (0.0 if np.isnan(value) else value) for name, value in scores.items()}

    def build(self, recipe: Any, *, classes: int, size: Any) -> nn.Module:
        """Build a segmenter, its encoder with random, pretrained or a classifier's weights."""
        return start_segmenter(recipe, classes=classes)

    def transforms(self, recipe: Any, image: Any) -> tuple[Any, Any]:
        """Joint transforms of image and label map."""
        return pair_transforms(recipe, image)

    def shown_size(self, recipe: Any, image: Any, model: nn.Module) -> tuple[int, int]:
        """Height and width of the training crops."""
        height, width = (recipe.joint or {}).get("crop", (image.size, image.size))
        return int(height), int(width)


TRAINING = SegmentationTraining()
