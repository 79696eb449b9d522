"""Annotated images: differences, heat maps, label maps, wrong pixels, boxes and masks.

Reports, overlays and the lab draw with these functions only, in the colours of `holdfast.plotting.class_colours`.
"""

import base64
import io
from collections.abc import Sequence

import cv2
import numpy as np
from PIL import Image, ImageDraw

from holdfast.plotting.class_colours import PALETTE, class_colour

Bytes = np.ndarray  # uint8, H W 3
LARGEST_SIDE = 640  # pixels of an image on the page; the model's input may be larger
WRONG = (255, 96, 48)
UNLABELLED = 255  # label of ignored pixels
MAP_OPACITY, MASK_OPACITY = 0.55, 0.45


def data_url(image: Bytes) -> str:
    """Encode an image as a ``data:`` URL of a PNG."""
    return f"data:image/png;base64,{base64.b64encode(png(image)).decode()}"


def png(image: Bytes) -> bytes:
    """Encode an image as PNG with light compression, since it is served locally."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, format="PNG", compress_level=1)
    return file.getvalue()


def shrunk(image: Bytes, *, most: int = LARGEST_SIDE) -> Bytes:
    """Scale an image down to sides of at most ``most`` pixels."""
    scale = most / max(image.shape[:2])
    if scale >= 1:
        return image
    height, width = (max(1, round(side * scale)) for side in image.shape[:2])
    return cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)


def difference(before: Bytes, after: Bytes) -> tuple[Bytes, float]:
    """Return after − before around mid-grey, amplified to the full range, and the gain."""
    change = after.astype(np.int16) - before
    largest = int(np.abs(change).max())
    gain = 127 / largest if largest else 1.0
    return (128 + np.round(gain * change)).clip(0, 255).astype(np.uint8), gain


def heat(values: np.ndarray, *, low: float, high: float) -> Bytes:
    """Map values from ``low`` (dark) to ``high`` (bright) to the inferno colour map, one pixel each."""
    scaled = (255 * np.clip((values - low) / max(high - low, 1e-12), 0, 1)).round().astype(np.uint8)
    return cv2.applyColorMap(scaled, cv2.COLORMAP_INFERNO)[..., ::-1].copy()


def shares(values: np.ndarray) -> Bytes:
    """Map fractions from 0 (blue) over ½ (white) to 1 (red), one pixel each."""
    share = np.clip(values, 0, 1)[..., None]
    blue, white, red = (np.array(colour, float) for colour in ((33, 102, 172), (247, 247, 247), (178, 24, 43)))
    mixed = np.where(share < 0.5, blue + 2 * share * (white - blue), white + (2 * share - 1) * (red - white))
    return mixed.round().astype(np.uint8)


def label_map(labels: np.ndarray) -> Bytes:
    """Colour a label map; ignored pixels are grey."""
    coloured = PALETTE[labels % len(PALETTE)]
    coloured[labels == UNLABELLED] = 128
    return coloured


def label_map_over(picture: Image.Image, labels: np.ndarray) -> Image.Image:
    """Draw a label map in class colours over the greyscale picture; ignored pixels stay grey."""
    grey = _grey(picture)
    mixed = (1 - MAP_OPACITY) * grey + MAP_OPACITY * PALETTE[labels % len(PALETTE)]
    return _image(np.where((labels != UNLABELLED)[..., None], mixed, grey))


def errors_over(picture: Image.Image, wrong: np.ndarray) -> Image.Image:
    """Draw wrong pixels in one bright colour over the darkened picture."""
    return _image(np.where(wrong[..., None], WRONG, 0.45 * _grey(picture)))


def _grey(picture: Image.Image) -> np.ndarray:
    return np.array(picture.convert("L").convert("RGB"), dtype=np.float64)


def _image(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(pixels.round().astype(np.uint8))


def draw_boxes(
    picture: Image.Image,
    size: Sequence[int] | np.ndarray,
    boxes: np.ndarray,
    labels: np.ndarray,
    masks: np.ndarray,
    *,
    names: Sequence[str] = (),
) -> Image.Image:
    """Draw boxes, and masks if there are any, in the colours of their classes.

    Args:
        picture: image of any size.
        size: height and width of the image that boxes and masks refer to.
        boxes: x0 y0 x1 y1, (n, 4).
        labels: class indices, (n,).
        masks: bool (n, H, W), or empty.
        names: caption of every box, if any.
    """
    pixels = np.array(picture.convert("RGB"), dtype=np.float64)
    for mask, label in zip(masks, labels, strict=False):
        there = np.array(Image.fromarray(mask).resize(picture.size, Image.Resampling.NEAREST))
        pixels[there] = (1 - MASK_OPACITY) * pixels[there] + MASK_OPACITY * np.array(class_colour(int(label)))
    drawn = _image(pixels)
    canvas = ImageDraw.Draw(drawn)
    height, width = (int(side) for side in size)
    scale = np.array([drawn.width / width, drawn.height / height] * 2)
    for box, label in zip(boxes * scale, labels, strict=True):
        left, top, right, bottom = (float(value) for value in box)
        corners = (left, top, max(right - 1, left), max(bottom - 1, top))
        canvas.rectangle((corners[0] - 1, corners[1] - 1, corners[2] + 1, corners[3] + 1), outline="white")
        canvas.rectangle(corners, outline=class_colour(int(label)), width=2)
    for box, name in zip(boxes * scale, names, strict=False):
        canvas.text((float(box[0]) + 3, float(box[1]) + 2), name, fill="white", stroke_width=1, stroke_fill="black")
    return drawn
