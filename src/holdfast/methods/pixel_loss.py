"""Cross-entropy of every pixel: what segmentation is trained for."""

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import HoldfastError
from holdfast.methods.objective import Loss

IGNORED = 255
DIVISORS = ("all", "labelled")


def pixel_cross_entropy(logits: Tensor, labels: Tensor, *, divisor: Literal["all", "labelled"] = "labelled") -> Tensor:
    """Cross-entropy of labelled pixels, summed and divided by how many pixels there are.

    FAN, TAP+ADL and SegFormer as released (mmsegmentation 0.13) divide by *all* pixels, so a crop that is half padding
    has half the gradient; ``labelled`` is torch's mean, with 0 instead of NaN where nothing is labelled.

    Args:
        logits: (B, classes, H, W).
        labels: int64 (B, H, W), 255 for ignored pixels.
        divisor: ``all`` or ``labelled``.
    """
    if divisor not in DIVISORS:
        raise HoldfastError(f"divisor must be one of {', '.join(DIVISORS)}, got {divisor!r}")
    total = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    return total / (labels.numel() if divisor == "all" else (labels != IGNORED).sum().clamp_min(1))


class PixelCrossEntropy:
    """The objective of plain segmentation training."""

    def __init__(self, divisor: Literal["all", "labelled"] = "labelled") -> None:
        if divisor not in DIVISORS:
            raise HoldfastError(f"divisor must be one of {', '.join(DIVISORS)}, got {divisor!r}")
        self.divisor = divisor

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Loss:
        """One forward pass; targets are label maps."""
        loss = pixel_cross_entropy(model(images), targets, divisor=self.divisor)
        return Loss(loss, {"cross_entropy": loss.detach()})
