"""Annotated images for HTML pages: differences, heat maps and label maps, as pure functions of arrays."""

import base64
import io

import cv2
import numpy as np
from PIL import Image

from holdfast.plotting.class_colours import PALETTE

Bytes = np.ndarray  # uint8, H W 3
LARGEST_SIDE = 640  # pixels of an image on the page; the model's input may be larger
WRONG = (213, 94, 0)


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
    coloured[labels == 255] = 128
    return coloured


def errors(seen: np.ndarray, true: np.ndarray, image: Bytes) -> Bytes:
    """The image in pale grey with misclassified pixels in orange."""
    pale = np.repeat(128 + image.mean(axis=2, keepdims=True) / 2, 3, axis=2).astype(np.uint8)
    pale[(seen != true) & (true != 255)] = WRONG
    return pale
