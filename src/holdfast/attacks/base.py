"""`AttackResult`: the adversarial images of an attack, the predictions for them, and its record."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from holdfast.errors import HoldfastError


@dataclass(frozen=True, eq=False)
class AttackResult:
    """Adversarial images and the model's predictions for them.

    Attributes:
        images: the adversarial images, (B, C, H, W), in [0,1].
        predictions: the predicted classes, (B,).
        success: where the attack succeeded, (B,): a wrong class, or the target class of a targeted attack. An image
            that was misclassified before the attack counts as a success unless the attack corrected it.
        record: the attack's name, settings and seed, and anything it had to leave out, as plain data.
    """

    images: Tensor
    predictions: Tensor
    success: Tensor
    record: Mapping[str, Any] = field(default_factory=dict)

    def accuracy(self, labels: Tensor) -> float:
        """Robust accuracy: the fraction of all images that are still classified correctly."""
        return accuracy(self.predictions, labels)


def accuracy(predictions: Tensor, labels: Tensor) -> float:
    """The fraction of predictions that equal their labels."""
    if predictions.shape != labels.shape:
        raise HoldfastError(f"labels must have shape {tuple(predictions.shape)}, got {tuple(labels.shape)}")
    return float((predictions == labels).double().mean())
