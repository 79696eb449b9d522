"""Sliding-window inference: large images in windows of the training crop size.

As in the released segmentation code: windows at regular strides, the last one moved back to the border, and logits
averaged over the windows that contain a pixel.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from holdfast.errors import HoldfastError
from holdfast.models.outputs import logits_of

WINDOW, STRIDE = 1024, 768  # Cityscapes, FAN and TAP+ADL


def window_starts(side: int, window: int, stride: int) -> list[int]:
    """Start positions of windows along a side; only 0 if the side is no longer than a window.

    >>> window_starts(2048, 1024, 768)
    [0, 768, 1024]
    """
    count = max(side - window + stride - 1, 0) // stride + 1
    return [max(min(number * stride, side - window), 0) for number in range(count)]


def slide(
    model: Callable[[Tensor], Tensor], images: Tensor, *, window: int | tuple[int, int] = WINDOW, stride: int = STRIDE
) -> Tensor:
    """Mean logits (B, classes, H, W) over all windows that contain a pixel, one window at a time; differentiable.

    Args:
        model: images (B, 3, h, w) → logits (B, classes, h, w).
        images: normalised, (B, 3, H, W).
        window: height and width of a window; a shorter image side is covered by one window of that side.
        stride: pixels from one window to the next, on both axes.
    """
    (height, width), stride = checked_window(window, stride)
    total: Tensor | None = None
    counts = images.new_zeros(images.shape[-2:])
    for rows, columns in _windows(images.shape[-2:], (height, width), stride):
        logits = logits_of(model(images[..., rows, columns]))
        if total is None:
            total = logits.new_zeros(*logits.shape[:2], *images.shape[-2:])
        total[..., rows, columns] += logits
        counts[rows, columns] += 1
    assert total is not None
    return total / counts


def checked_window(window: int | Sequence[int], stride: int | None) -> tuple[tuple[int, int], int]:
    """Height and width of a window, and its stride, by default three quarters of the shorter side."""
    height, width = (window, window) if isinstance(window, int) else window
    shorter = min(height, width)
    step = max(1, 3 * shorter // 4) if stride is None else stride
    if shorter < 1 or not 0 < step <= shorter:
        raise HoldfastError(f"stride must lie between 1 and the window's {shorter}, got {stride}")
    return (int(height), int(width)), step


class Windowed(nn.Module):
    """Wrapper for sliding-window inference with any segmentation model."""

    def __init__(self, model: nn.Module, window: int | Sequence[int], stride: int | None = None) -> None:
        super().__init__()
        self.model = model
        self.window, self.stride = checked_window(window, stride)
        self.pretrained_cfg = getattr(model, "pretrained_cfg", None)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) → logits (B, classes, H, W)."""
        return slide(self.model, images, window=self.window, stride=self.stride)


def predicted_map(logits: Tensor, size: tuple[int, ...], *, cell: str) -> np.ndarray:
    """The predicted class of each pixel of one image, uint8 (H, W) of the label map's size.

    Logits (classes, h, w) of another size are resampled first, bilinearly, as the released code does after a resize.
    """
    return _at_size(logits, size, cell=cell).argmax(dim=0).to(torch.uint8).cpu().numpy()


def predicted_map_and_confidence(logits: Tensor, size: tuple[int, ...], *, cell: str) -> tuple[np.ndarray, np.ndarray]:
    """`predicted_map`, and the probability of that class, float32 (H, W)."""
    logits = _at_size(logits, size, cell=cell)
    highest, classes = logits.float().max(dim=0)
    sure = (highest - logits.float().logsumexp(dim=0)).exp()
    return classes.to(torch.uint8).cpu().numpy(), sure.cpu().numpy()


def _at_size(logits: Tensor, size: tuple[int, ...], *, cell: str) -> Tensor:
    if not torch.isfinite(logits).all():
        raise HoldfastError(
            f"the model must return finite logits, got NaN or infinity in {cell}; nothing was recorded for it"
        )
    if logits.shape[-2:] != size:
        logits = interpolate(logits[None].float(), size=size, mode="bilinear", align_corners=False)[0]
    return logits


def _windows(size: torch.Size, window: tuple[int, int], stride: int) -> Iterator[tuple[slice, slice]]:
    for top in window_starts(size[0], window[0], stride):
        for left in window_starts(size[1], window[1], stride):
            yield slice(top, top + window[0]), slice(left, left + window[1])
