"""One decoder for every image file that is read, so that training, evaluation and corruption see the same pixels.

Only the formats below are tried, whatever a file is called: Pillow would hand a PostScript program to Ghostscript.
Sixteen bits per channel become eight as torchvision (``v >> 8``) and Pillow (16-bit colour) do; floats and 32-bit
integers have no agreed range and are refused. Transparency is dropped, as by torchvision and timm.
"""

import contextlib
import io
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from holdfast.errors import HoldfastError

FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP")
LARGEST_FILE = 512 * 2**20  # bytes
LARGEST_IMAGE = 178_956_970  # pixels; where Pillow begins to refuse
EXIF = ("ignore", "apply")
_ORIENTATION = 0x0112  # the tag; 1 is upright


class UnreadableFile(HoldfastError):
    """A file that is no image we decode; the sentence is the reason alone."""


class Decoded(NamedTuple):
    """An RGB image, and whether its EXIF data ask to rotate or mirror it."""

    image: Image.Image
    turned: bool


def decode(path: Path, *, exif: str = "ignore") -> Decoded:
    """One file as an RGB image; raises :class:`UnreadableFile` for anything else, whatever is in the file.

    Args:
        path: the file.
        exif: ``ignore`` leaves the pixels as they are stored, as torchvision and timm do; ``apply`` turns them upright.
    """
    with open_image(path) as picture:
        return _decode_picture(picture, exif=exif)


def decode_bytes(content: bytes, *, largest_image: int) -> Decoded:
    """The same of a file's content that never was on disk, with a limit of its own in pixels."""
    with _open_file(io.BytesIO(content), largest_image) as picture:
        return _decode_picture(picture, exif="ignore")


@contextlib.contextmanager
def open_image(path: Path) -> Iterator[Image.Image]:
    """A file of one of our formats and of a sensible size, as Pillow opens it; whatever fails is the file's fault."""
    with _open_file(path, LARGEST_IMAGE) as picture:
        yield picture


@contextlib.contextmanager
def _open_file(file: Path | io.BytesIO, largest_image: int) -> Iterator[Image.Image]:
    try:
        if not isinstance(file, io.BytesIO) and os.path.getsize(file) > LARGEST_FILE:
            raise UnreadableFile(f"expected at most {LARGEST_FILE >> 20} MiB, got {os.path.getsize(file) >> 20}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what matters is whether it decodes
            with Image.open(file, formats=FORMATS) as picture:
                if picture.width * picture.height > largest_image:
                    size = f"{picture.width}×{picture.height}"
                    raise UnreadableFile(f"expected at most {largest_image} pixels, got {size}")
                yield picture
    except HoldfastError:
        raise
    except UnidentifiedImageError as error:  # Pillow's own sentence names the whole path
        raise UnreadableFile(f"not an image of the formats {', '.join(FORMATS)}") from error
    except Exception as error:  # a broken file can raise anything in a decoder: struct.error, KeyError, MemoryError …
        reason = getattr(error, "strerror", None) or (str(error).splitlines() or [""])[0]
        raise UnreadableFile(reason or type(error).__name__) from error


def check_exif(exif: str) -> str:
    """The word, if it is one of the two."""
    if exif not in EXIF:
        raise HoldfastError(f"exif must be {' or '.join(EXIF)}, got {exif!r}")
    return exif


def turned_warning(turned: int, *, exif: str) -> str:
    """The sentence about images with an EXIF rotation; empty if there are none, or if they were turned."""
    if not turned or exif == "apply":
        return ""
    return (
        f"{turned} {'image asks' if turned == 1 else 'images ask'} to be rotated by EXIF, which is ignored as "
        "torchvision and timm do; exif: apply turns them upright"
    )


def _decode_picture(picture: Image.Image, *, exif: str) -> Decoded:
    turned = _is_turned(picture)
    picture.load()
    image = _eight_bits(picture)
    image = image if image.mode == "RGB" else image.convert("RGB")  # which would copy it
    if turned and exif == "apply":
        image = _upright(image, picture)
    return Decoded(image, turned)


def _eight_bits(picture: Image.Image) -> Image.Image:
    mode = picture.mode
    if mode.startswith("I;16") or (mode == "I" and picture.format in ("PNG", "PPM")):  # as older Pillows call it
        return Image.fromarray((np.asarray(picture).astype(np.uint32) >> 8).astype(np.uint8))
    if mode in ("I", "F"):
        kind = "floats" if mode == "F" else "32-bit integers"
        raise UnreadableFile(f"expected 8 or 16 bits per channel, got {kind}, which have no agreed range; convert it")
    return picture


def _is_turned(picture: Image.Image) -> bool:
    try:
        return picture.getexif().get(_ORIENTATION, 1) in range(2, 9)
    except Exception:  # broken EXIF data in a readable image tell nothing
        return False


def _upright(image: Image.Image, picture: Image.Image) -> Image.Image:
    image.getexif()[_ORIENTATION] = picture.getexif()[_ORIENTATION]
    turned = ImageOps.exif_transpose(image)
    return turned if turned is not None else image


# How large an image may become, checked before memory is taken: a file of a few kilobytes can hold an image of
# 1×3,000,000 pixels, and at a short side of 256 that takes terabytes.
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
