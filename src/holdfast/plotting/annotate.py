"""Annotated images for HTML pages: differences, heat maps, label maps and boxes, as pure functions of arrays."""

import base64
import io
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from PIL import Image

Bytes = np.ndarray  # uint8, H W 3
LARGEST_SIDE = 640  # pixels of an image on the page; the model's input may be larger
BOXES_SIDE = 400  # pixels to which small images are enlarged, so that box labels are legible
WRONG = (213, 94, 0)
# Okabe and Ito's colour-blind safe colours, then darker ones of the same hues; further classes repeat them
PALETTE = np.array(
    [
        (0, 0, 0), (230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0),
        (204, 121, 167), (120, 120, 120), (140, 96, 0), (40, 100, 140), (0, 90, 66), (150, 142, 30), (0, 60, 100),
        (120, 50, 0), (120, 66, 96), (200, 200, 200), (255, 210, 120), (170, 220, 250), (90, 220, 180),
    ],
    np.uint8,
)  # fmt: skip


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


def colour_of(label: int) -> str:
    """Hex colour of a class on label maps."""
    return "#{:02x}{:02x}{:02x}".format(*PALETTE[label % len(PALETTE)].tolist())


def boxes(image: Bytes, found: Any, names: Sequence[str], *, least: float = 0.5, most: int = 50) -> Bytes:
    """Draw the detections with a score of at least ``least`` on an enlarged image.

    ``found`` has boxes, labels (from 1) and scores; scores of None draw all boxes, as for ground truth.
    """
    scale = max(1, BOXES_SIDE // max(image.shape[:2]))
    canvas = np.ascontiguousarray(image.repeat(scale, axis=0).repeat(scale, axis=1))
    for corners, label, score in _best(found, least=least)[:most]:
        colour = [int(value) for value in PALETTE[label % (len(PALETTE) - 1) + 1]]
        name = names[label - 1] if 0 < label <= len(names) else str(label)
        _draw_box(canvas, [scale * value for value in corners], f"{name}{score}", colour)
    return canvas


def _best(found: Any, *, least: float) -> list[tuple[list[float], int, str]]:
    scores = [1.0] * len(found["labels"]) if found["scores"] is None else found["scores"].tolist()
    rows = zip(found["boxes"].tolist(), found["labels"].tolist(), scores, strict=True)
    known = found["scores"] is None
    return [(corners, label, "" if known else f" {score:.2f}") for corners, label, score in rows if score >= least]


def _draw_box(canvas: Bytes, corners: Sequence[float], label: str, colour: Sequence[int]) -> None:
    x0, y0, x1, y1 = (round(value) for value in corners)
    cv2.rectangle(canvas, (x0, y0), (x1, y1), colour, 2, cv2.LINE_AA)
    label = label.encode("ascii", "replace").decode()
    (width, height), _ = cv2.getTextSize(label, cv2.FONT_HERSHEY_SIMPLEX, 0.5, 1)
    top = max(y0 - height - 8, 0)
    cv2.rectangle(canvas, (x0, top), (x0 + width + 6, top + height + 8), colour, -1)
    ink = (0, 0, 0) if sum(colour) > 330 else (255, 255, 255)
    cv2.putText(canvas, label, (x0 + 3, top + height + 4), cv2.FONT_HERSHEY_SIMPLEX, 0.5, ink, 1, cv2.LINE_AA)
