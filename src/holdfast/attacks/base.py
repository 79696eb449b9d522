"""What an attack hands back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from holdfast.errors import HoldfastError


@dataclass(frozen=True, eq=False)
class AttackResult:
    """Adversarial images and what the model makes of them.

    Attributes:
        images: the adversarial images, (B, C, H, W), in [0,1].
        predictions: the classes the model sees in them, (B,).
        success: where the attack reached its goal, (B,): a wrong class, or the target of a targeted attack. An image
            that was wrong before counts as a success unless the attack turned it right.
        record: what was run, as plain data: the attack's name, its settings, the seed, and what it had to leave out.
    """

    images: Tensor
    predictions: Tensor
    success: Tensor
    record: Mapping[str, Any] = field(default_factory=dict)

    def accuracy(self, labels: Tensor) -> float:
        """The share of all images that the model still gets right."""
        return accuracy(self.predictions, labels)


def accuracy(predictions: Tensor, labels: Tensor) -> float:
    """The share of predictions that equal their labels."""
    if predictions.shape != labels.shape:
        raise HoldfastError(f"labels must have shape {tuple(predictions.shape)}, got {tuple(labels.shape)}")
    return float((predictions == labels).double().mean())
