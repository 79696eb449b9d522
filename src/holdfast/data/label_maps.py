"""Label maps: the class of every pixel, what may stand in one, and what a source of them is."""

from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from holdfast.errors import HoldfastError

IGNORED = 255  # a pixel that counts neither in a loss nor in a metric
EXIF_ORIENTATION = 274


class LabelMapSource(Protocol):
    """Images of one data set with the class of every pixel.

    Like :class:`~holdfast.data.source.Source`, but the target of an image is a map, read when it is asked for.
    """

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names, in the order of the labels."""
        ...

    def __len__(self) -> int: ...

    def id(self, index: int) -> str:
        """The stable name of one image."""
        ...

    def image(self, index: int) -> Image.Image:
        """One image, RGB; raises :class:`~holdfast.data.source.UnreadableImage`."""
        ...

    def target(self, index: int) -> np.ndarray:
        """The class of every pixel, uint8 (H, W); 255 is ignored."""
        ...


def read_label_file(path: Path) -> np.ndarray:
    """The numbers in a label image of one channel: index or palette PNG, uint8 or uint16 (H, W)."""
    try:
        with Image.open(path) as image:
            if image.mode not in ("L", "P", "1", "I", "I;16"):
                raise HoldfastError(
                    f"label image {str(path)!r} must hold one class number per pixel (grey or palette), "
                    f"got colours of mode {image.mode!r}"
                )
            return np.array(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        if isinstance(error, HoldfastError):
            raise
        raise HoldfastError(f"label image {str(path)!r} cannot be read ({error})") from error


def check_upright(path: Path) -> None:
    """Refuse a photograph that a viewer would turn: whoever drew its labels may have seen it the other way."""
    try:
        with Image.open(path) as image:
            orientation = image.getexif().get(EXIF_ORIENTATION, 1)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return  # whoever decodes it says what is wrong
    if orientation not in (0, 1):
        raise HoldfastError(
            f"image {str(path)!r} must be stored upright where it has labels, got EXIF orientation {orientation}: "
            "turn the pixels and remove the tag"
        )


def check_label_map(labels: np.ndarray, *, classes: int, id: str, size: tuple[int, int] | None = None) -> np.ndarray:
    """The map as uint8 if it fits its image and its classes and labels at least one pixel.

    Args:
        labels: integers (H, W), 255 for ignored pixels.
        classes: how many classes there are.
        id: the image's name, for the sentence.
        size: the image's height and width; unchecked unless given.
    """
    if size is not None and labels.shape != size:
        raise HoldfastError(
            f"the label map of {id!r} must have its image's size {size[0]}×{size[1]}, "
            f"got {'×'.join(map(str, labels.shape))}"
        )
    present = np.unique(labels)
    wrong = present[(present != IGNORED) & ((present < 0) | (present >= classes))]
    if len(wrong):
        shown = ", ".join(map(str, wrong[:5])) + (" …" if len(wrong) > 5 else "")
        raise HoldfastError(f"labels of {id!r} must be 0 to {classes - 1} or {IGNORED} for ignored, got {shown}")
    if not (present != IGNORED).any():
        raise HoldfastError(f"the label map of {id!r} must label at least one pixel, got ignored pixels only")
    return labels.astype(np.uint8)
