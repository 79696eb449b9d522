"""Image decoding, shared by training, evaluation and corruption, so that all see the same pixels.

Only the formats below are tried, whatever a file's name: Pillow would run a PostScript program in Ghostscript.
Sixteen bits per channel become eight as in torchvision (``v >> 8``) and Pillow (16-bit colour); floats and 32-bit
integers have no agreed range and are refused. Transparency is dropped, as in torchvision and timm.
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

from holdfast.errors import HoldfastError, first_line

FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP")
LARGEST_FILE = 512 * 2**20  # bytes; a decoder may read the whole file before it finds the size
LARGEST_IMAGE = 178_956_970  # pixels; Pillow's own limit for decompression bombs, twice MAX_IMAGE_PIXELS
EXIF = ("ignore", "apply")
_ORIENTATION = 0x0112  # EXIF tag; 1 is upright


class UnreadableFile(HoldfastError):
    """A file that cannot be decoded; the message is the reason alone."""


class Decoded(NamedTuple):
    """An RGB image, and whether its EXIF orientation rotates or mirrors it."""

    image: Image.Image
    turned: bool


def decode(path: Path, *, exif: str = "ignore") -> Decoded:
    """Decode a file as RGB; raises `UnreadableFile` for anything else.

    Args:
        path: the file.
        exif: ``ignore`` keeps the stored pixels, as torchvision and timm do; ``apply`` rotates them upright.
    """
    with open_image(path) as picture:
        return _decode_picture(picture, exif=exif)


def decode_bytes(content: bytes, *, largest_image: int) -> Decoded:
    """Decode the content of an image file from memory, with a given limit in pixels."""
    with _open_file(io.BytesIO(content), largest_image) as picture:
        return _decode_picture(picture, exif="ignore")


@contextlib.contextmanager
def open_image(path: Path) -> Iterator[Image.Image]:
    """Open a file of a supported format and size with Pillow; any failure raises `UnreadableFile`."""
    with _open_file(path, LARGEST_IMAGE) as picture:
        yield picture


@contextlib.contextmanager
def _open_file(file: Path | io.BytesIO, largest_image: int) -> Iterator[Image.Image]:
    try:
        if not isinstance(file, io.BytesIO) and os.path.getsize(file) > LARGEST_FILE:
            raise UnreadableFile(f"expected at most {LARGEST_FILE >> 20} MiB, got {os.path.getsize(file) >> 20}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns about harmless metadata; only a failure to decode matters
            with Image.open(file, formats=FORMATS) as picture:
                if picture.width * picture.height > largest_image:
                    size = f"{picture.width}×{picture.height}"
                    raise UnreadableFile(f"expected at most {largest_image} pixels, got {size}")
                yield picture
    except HoldfastError:
        raise
    except UnidentifiedImageError as error:  # Pillow's own message contains the whole path
        raise UnreadableFile(f"not an image of the formats {', '.join(FORMATS)}") from error
    except Exception as error:  # a broken file can raise anything in a decoder: struct.error, KeyError, MemoryError …
        reason = getattr(error, "strerror", None) or first_line(error)
        raise UnreadableFile(reason or type(error).__name__) from error


def check_exif(exif: str) -> str:
    """Return ``exif`` if it is ``ignore`` or ``apply``; raises an error otherwise."""
    if exif not in EXIF:
        raise HoldfastError(f"exif must be {' or '.join(EXIF)}, got {exif!r}")
    return exif


def turned_warning(turned: int, *, exif: str) -> str:
    """Warning about images with an EXIF orientation; empty if there are none or it was applied."""
    if not turned or exif == "apply":
        return ""
    return (
        f"{turned} {'image has' if turned == 1 else 'images have'} an EXIF rotation, which is ignored as in "
        "torchvision and timm; exif: apply rotates them upright"
    )


def _decode_picture(picture: Image.Image, *, exif: str) -> Decoded:
    turned = _is_turned(picture)
    picture.load()
    image = _eight_bits(picture)
    image = image if image.mode == "RGB" else image.convert("RGB")  # convert() always copies
    if turned and exif == "apply":
        image = _upright(image, picture)
    return Decoded(image, turned)


def _eight_bits(picture: Image.Image) -> Image.Image:
    mode = picture.mode
    if mode.startswith("I;16") or (
        mode == "I" and picture.format in ("PNG", "PPM")
    ):  # mode I: 16-bit files in older versions of Pillow
        return Image.fromarray((np.asarray(picture).astype(np.uint32) >> 8).astype(np.uint8))
    if mode in ("I", "F"):
        kind = "floats" if mode == "F" else "32-bit integers"
        raise UnreadableFile(f"expected 8 or 16 bits per channel, got {kind}, which have no agreed range; convert it")
    return picture


def _is_turned(picture: Image.Image) -> bool:
    try:
        return picture.getexif().get(_ORIENTATION, 1) in range(2, 9)
    except Exception:  # broken EXIF data in a readable image count as none
        return False


def _upright(image: Image.Image, picture: Image.Image) -> Image.Image:
    image.getexif()[_ORIENTATION] = picture.getexif()[_ORIENTATION]
    turned = ImageOps.exif_transpose(image)
    return turned if turned is not None else image


# How large an image may become, checked before memory is taken: a file of a few kilobytes can hold an image of
# 1×3,000,000 pixels, and at a short side of 256 that takes terabytes.
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
