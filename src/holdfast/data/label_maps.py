"""Label maps: reading, checking and remapping the class of every pixel."""

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from holdfast.data.image_folder import decode_file
from holdfast.errors import HoldfastError
from holdfast.io.images import UnreadableFile, open_image

TASK = "segmentation"
IGNORED = 255  # excluded from losses and metrics: the ignore index of Cityscapes, ADE20K and mmseg
EXIF_ORIENTATION = 274


def read_label_file(path: Path) -> np.ndarray:
    """Read the class ids of a single-channel label image: grey or palette PNG, uint8 or uint16 (H, W)."""
    try:
        with open_image(path) as image:
            if image.mode not in ("L", "P", "1", "I", "I;16"):
                raise HoldfastError(
                    f"label image {str(path)!r} must hold one class number per pixel (grey or palette), "
                    f"got colours of mode {image.mode!r}"
                )
            return np.array(image)
    except UnreadableFile as error:
        raise HoldfastError(f"label image {str(path)!r} cannot be read ({error})") from error


def check_upright(path: Path) -> None:
    """Refuse images with an EXIF rotation: their labels may have been drawn in either orientation."""
    try:
        with open_image(path) as image:
            orientation = image.getexif().get(EXIF_ORIENTATION, 1)
    except UnreadableFile:
        return  # decoding the image later raises the error
    if orientation not in (0, 1):
        raise HoldfastError(
            f"image {str(path)!r} must be stored upright where it has labels, got EXIF orientation {orientation}: "
            "rotate the pixels and remove the tag"
        )


def check_label_map(labels: np.ndarray, *, classes: int, id: str, size: tuple[int, int] | None = None) -> np.ndarray:
    """Return the map as uint8; raises an error unless size and labels are valid and some pixel is labelled.

    Args:
        labels: integers (H, W), 255 for ignored pixels.
        classes: number of classes.
        id: the image's id, for the error message.
        size: the image's height and width; None skips the check.
    """
    if size is not None and labels.shape != size:
        raise HoldfastError(
            f"the label map of {id!r} must have its image's size {size[0]}×{size[1]}, "
            f"got {'×'.join(map(str, labels.shape))}"
        )
    present = np.unique(labels)
    wrong = present[(present != IGNORED) & ((present < 0) | (present >= classes))]
    if len(wrong):
        values = ", ".join(map(str, wrong[:5])) + (" …" if len(wrong) > 5 else "")
        raise HoldfastError(f"labels of {id!r} must be 0 to {classes - 1} or {IGNORED} for ignored, got {values}")
    if not (present != IGNORED).any():
        raise HoldfastError(f"the label map of {id!r} must label at least one pixel, got ignored pixels only")
    return labels.astype(np.uint8)


class PairedFiles:
    """Image files paired with label files.

    Args:
        name: the data's name in messages.
        ids: stable ids of the images.
        images: image files.
        labels: label files in the same order; None for a test set with withheld labels.
        classes: the class names.
        table: lookup table (256,) from ids in the files to labels, 255 for ignored; None keeps the ids.
    """

    def __init__(
        self,
        name: str,
        *,
        ids: Sequence[str],
        images: Sequence[Path],
        labels: Sequence[Path] | None,
        classes: tuple[str, ...],
        table: np.ndarray | None = None,
    ) -> None:
        self.name, self.classes, self.table = name, classes, table
        # arrays instead of lists of strings: forked workers share the memory, since no reference counts are written
        self._ids = np.array(ids, dtype=np.str_)
        self._images = np.array([str(path) for path in images], dtype=np.str_)
        self._labels = None if labels is None else np.array([str(path) for path in labels], dtype=np.str_)
        if labels is not None:
            _check_partners(name, images, labels)

    task = TASK
    box: tuple[int, int] | None = None  # height and width that images are resized to fit before inference
    numbers: tuple[int, ...] | None = None  # the id of each class in label files, where it is not the label

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def has_labels(self) -> bool:
        """Whether the images have labels."""
        return self._labels is not None

    def id(self, index: int) -> str:
        """The stable id of one image."""
        return str(self._ids[index])

    def image(self, index: int) -> Image.Image:
        """Decode one image; an image with an EXIF rotation is refused."""
        path = Path(self._images[index])
        check_upright(path)
        return decode_file(path, id=self.id(index))

    def target(self, index: int) -> np.ndarray:
        """The label of every pixel, uint8 (H, W); 255 is ignored."""
        if self._labels is None:
            raise HoldfastError(f"{self.name} has no labels: its predictions can only be exported")
        numbers = read_label_file(Path(self._labels[index]))
        if self.table is not None and numbers.max(initial=0) < len(self.table):
            numbers = self.table[numbers]
        return check_label_map(numbers, classes=len(self.classes), id=self.id(index), size=self._size(index))

    def label_digest(self, index: int) -> int:
        """Checksum of the label file, without decoding it."""
        if self._labels is None:
            raise HoldfastError(f"{self.name} has no labels: its predictions can only be exported")
        try:
            return zlib.crc32(Path(self._labels[index]).read_bytes())
        except OSError as error:
            raise HoldfastError(
                f"label image {str(self._labels[index])!r} cannot be read ({error.strerror})"
            ) from error

    def file(self, index: int) -> Path:
        """The path of one image file."""
        return Path(self._images[index])

    def content(self, index: int) -> int:
        """Size of the image file in bytes, part of the data fingerprint."""
        path = Path(self._images[index])
        return path.stat().st_size if path.is_file() else -1

    def _size(self, index: int) -> tuple[int, int] | None:
        try:
            with open_image(Path(self._images[index])) as image:
                return image.height, image.width
        except UnreadableFile:
            return None  # decoding the image later raises the error


def label_table(numbers: Mapping[int, int], *, other: int = IGNORED) -> np.ndarray:
    """Build the lookup table of `PairedFiles` from ids in the files to labels; other ids become ``other``."""
    table = np.full(256, other, np.uint8)
    for number, label in numbers.items():
        table[number] = label
    return table


def _check_partners(name: str, images: Sequence[Path], labels: Sequence[Path]) -> None:
    alone = [(image, label) for image, label in zip(images, labels, strict=True) if not label.is_file()]
    if alone:
        raise HoldfastError(
            f"every image of {name} must have a label file, but {len(alone)} of {len(images)} have none: "
            f"{str(alone[0][0])!r} lacks {str(alone[0][1])!r}"
        )
