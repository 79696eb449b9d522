"""Pixel-wise cross-entropy, the loss of semantic segmentation."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import HoldfastError
from holdfast.methods.objective import Loss

IGNORED = 255
DIVISORS = ("all", "labelled")


def pixel_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    *,
    divisor: Literal["all", "labelled"] = "labelled",
    class_weights: Sequence[float] | None = None,
) -> Tensor:
    """Cross-entropy of labelled pixels, summed and divided by the number of pixels.

    FAN, TAP+ADL and SegFormer as released (mmsegmentation 0.13) divide by *all* pixels, so a crop that is half padding
    has half the gradient; ``labelled`` is torch's mean, with 0 instead of NaN where nothing is labelled.

    Args:
        logits: (B, classes, H, W).
        labels: int64 (B, H, W), 255 for ignored pixels.
        divisor: ``all`` or ``labelled``.
        class_weights: weight of each class, to give rare ones more weight (ours; no paper has them); the sum is then
            divided by the weights of the labelled pixels.
    """
    if divisor not in DIVISORS:
        raise HoldfastError(f"divisor must be one of {', '.join(DIVISORS)}, got {divisor!r}")
    if class_weights is not None:
        if len(class_weights) != logits.shape[1]:
            raise HoldfastError(
                f"class_weights must have {logits.shape[1]} values, one per class, got {len(class_weights)}"
            )
        weights = logits.new_tensor(class_weights)
        total = F.cross_entropy(logits, labels, weight=weights, ignore_index=IGNORED, reduction="sum")
        of_pixels = weights[labels[labels != IGNORED]]
        return total / (labels.numel() if divisor == "all" else of_pixels.sum().clamp_min(1e-6))
    total = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    return total / (labels.numel() if divisor == "all" else (labels != IGNORED).sum().clamp_min(1))


class PixelCrossEntropy:
    """The objective of segmentation training without additional terms."""

    def __init__(
        self, divisor: Literal["all", "labelled"] = "labelled", class_weights: Sequence[float] | None = None
    ) -> None:
        if divisor not in DIVISORS:
            raise HoldfastError(f"divisor must be one of {', '.join(DIVISORS)}, got {divisor!r}")
        self.divisor, self.class_weights = divisor, class_weights

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Loss:
        """The loss of a batch with label maps as targets, from one forward pass."""
        loss = pixel_cross_entropy(model(images), targets, divisor=self.divisor, class_weights=self.class_weights)
        return Loss(loss, {"cross_entropy": loss.detach()})
