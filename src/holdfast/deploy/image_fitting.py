"""An image brought to the size that a dense model takes, and boxes brought back: stretched, letterboxed or as it is."""

from dataclasses import dataclass

import cv2
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from holdfast.errors import HoldfastError, nearest

RESIZES = {
    "none": "images keep their size",
    "stretch": "images are resized to the model's size, whatever their aspect",
    "letterbox": "images keep their aspect and lie in the middle of grey (114) borders",
}
OF_PILLOW = ("bilinear", "bicubic", "nearest", "lanczos", "box", "hamming")
OF_OPENCV = {
    "opencv-bilinear": cv2.INTER_LINEAR,
    "opencv-bicubic": cv2.INTER_CUBIC,
    "opencv-nearest": cv2.INTER_NEAREST,
}
INTERPOLATIONS = (*OF_PILLOW, *OF_OPENCV)  # Pillow's smooth when they shrink an image, OpenCV's do not
GREY = 114


@dataclass(frozen=True)
class Placement:
    """Where an image lies in what a model sees: a point x, y of the image is at scale · (x, y) + offset there.

    Attributes:
        image: height and width of the image.
        seen: height and width of what the model sees.
        scale: of x and of y.
        offset: of x and of y, in the model's pixels.
    """

    image: tuple[int, int]
    seen: tuple[int, int]
    scale: tuple[float, float] = (1.0, 1.0)
    offset: tuple[int, int] = (0, 0)

    def undo(self, boxes: Tensor) -> Tensor:
        """Boxes (n, 4), x0 y0 x1 y1, of the model's pixels in those of the image."""
        offset, scale = (boxes.new_tensor([*pair, *pair]) for pair in (self.offset, self.scale))
        return (boxes - offset) / scale

    def clip(self, boxes: Tensor) -> Tensor:
        """Boxes of image pixels, cut off at its borders."""
        height, width = self.image
        return torch.minimum(boxes.clamp_min(0), boxes.new_tensor([width, height, width, height]))


def check_choice(name: str, value: str, known: tuple[str, ...] | dict[str, str]) -> None:
    """Refuse a word that is none of the known ones."""
    if value not in known:
        raise HoldfastError(f"{name} must be one of {', '.join(known)}, got {value!r}{nearest(value, known)}")


def place_image(
    image: np.ndarray, size: tuple[int, int] | None, *, resize: str, interpolation: str
) -> tuple[np.ndarray, Placement]:
    """An image, uint8 (H, W, 3), as a model of height and width ``size`` sees it, and where it lies there."""
    own = (image.shape[0], image.shape[1])
    if resize == "none" or size is None:
        return image, Placement(own, own)
    if resize == "stretch":
        placement = Placement(own, size, (size[1] / own[1], size[0] / own[0]))
        return scaled(image, size, interpolation), placement
    return _letterboxed(image, size, interpolation)


def scaled(image: np.ndarray, size: tuple[int, int], interpolation: str) -> np.ndarray:
    """An image, uint8 (H, W, 3), of another height and width."""
    height, width = size
    if image.shape[:2] == size:
        return image
    if interpolation in OF_OPENCV:
        return cv2.resize(image, (width, height), interpolation=OF_OPENCV[interpolation])
    return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling[interpolation.upper()]))


def _letterboxed(image: np.ndarray, size: tuple[int, int], interpolation: str) -> tuple[np.ndarray, Placement]:
    """As YOLO's validation does it: one ratio for both sides, rounded sides, the larger half of an odd border last."""
    own = (image.shape[0], image.shape[1])
    ratio = min(size[0] / own[0], size[1] / own[1])
    height, width = (max(1, round(side * ratio)) for side in own)
    top, left = (round((whole - part) / 2 - 0.1) for whole, part in zip(size, (height, width), strict=True))
    canvas = np.full((*size, 3), GREY, np.uint8)
    canvas[top : top + height, left : left + width] = scaled(image, (height, width), interpolation)
    return canvas, Placement(own, size, (ratio, ratio), (left, top))
