"""How large an image may become on its way to a model: bounds that are checked before memory is taken.

A file of a few kilobytes can hold an image of 1×3,000,000 pixels; at a short side of 256 it takes terabytes.
"""

from holdfast.errors import HoldfastError

LARGEST_RESIZED = 2**26  # pixels: a short side of 256 and a thousand times as long
LARGEST_MOVED = 2**21  # pixels of an image that is moved as a whole, frame by frame: 256 and 32 times as long
LARGEST_BUFFER = 2**26  # values that a corruption works in, beside what is in proportion to the image
IN_PROPORTION = 8  # values per pixel


class ImageSizeError(HoldfastError):
    """An image of a size or shape that cannot be worked with: one unreadable image, and no reason to stop."""


def check_resized(before: tuple[int, int], after: tuple[int, int], *, largest: int = LARGEST_RESIZED) -> None:
    """Refuse to make an image of so many pixels; sizes are width and height."""
    if after[0] * after[1] > largest:
        raise ImageSizeError(
            f"image: expected at most {largest} pixels after resizing, "
            f"got {after[0]}×{after[1]} from {before[0]}×{before[1]}"
        )


def check_short_side(size: tuple[int, int], side: int) -> None:
    """Refuse an image that would be too large once its short side is brought to ``side``."""
    scale = side / min(size)
    check_resized(size, (round(size[0] * scale), round(size[1] * scale)))


def check_buffer(kind: str, shape: tuple[int, ...], values: int, *, what: str = "values") -> None:
    """Refuse a corruption that would work in far more memory than the image takes; ``shape`` is height and width."""
    height, width = shape[:2]
    largest = max(LARGEST_BUFFER, IN_PROPORTION * height * width)
    if values > largest:
        raise ImageSizeError(
            f"image: {kind} of {width}×{height} pixels works in {values} {what}, expected at most {largest}; "
            "cut the image, or scale it down"
        )
