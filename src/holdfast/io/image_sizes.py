"""Limits on the size of resized images and work buffers, checked before memory is allocated.

A file of a few kilobytes can hold an image of 1×3,000,000 pixels; resized to a short side of 256 it needs terabytes.
"""

from holdfast.errors import HoldfastError

LARGEST_RESIZED = 2**26  # pixels: 256 × 256,000, an aspect ratio of 1:1000
LARGEST_MOVED = 2**21  # pixels per frame of a perturbation sequence: 256 × 8192, an aspect ratio of 1:32
LARGEST_BUFFER = 2**26  # values in a corruption's work buffer, for images of any size
IN_PROPORTION = 8  # values per pixel that are always allowed


class ImageSizeError(HoldfastError):
    """An image of unusable size or shape; counts as one unreadable image and does not stop an evaluation."""


def check_resized(before: tuple[int, int], after: tuple[int, int], *, largest: int = LARGEST_RESIZED) -> None:
    """Refuse a resize to more than ``largest`` pixels; sizes are (width, height)."""
    if after[0] * after[1] > largest:
        raise ImageSizeError(
            f"image: expected at most {largest} pixels after resizing, "
            f"got {after[0]}×{after[1]} from {before[0]}×{before[1]}"
        )


def check_short_side(size: tuple[int, int], side: int) -> None:
    """Refuse an image that would be too large after resizing its short side to ``side``."""
    scale = side / min(size)
    check_resized(size, (round(size[0] * scale), round(size[1] * scale)))


def check_buffer(kind: str, shape: tuple[int, ...], values: int, *, what: str = "values") -> None:
    """Refuse a corruption that needs far more memory than the image; ``shape`` is (height, width)."""
    height, width = shape[:2]
    largest = max(LARGEST_BUFFER, IN_PROPORTION * height * width)
    if values > largest:
        raise ImageSizeError(
            f"image: {kind} of {width}×{height} pixels needs {values} {what}, expected at most {largest}; "
            "crop the image or scale it down"
        )
