"""Geometric perturbations of ImageNet-P: translate, rotate, shear, scale, tilt; filled with black.

The published sequences were made with an unknown version of torchvision. Rotation, scaling and shear are about the
image's centre here, as in later versions; 0.2.1 used a centre half a pixel further right and down, and its shear also
scaled rows by 1/cos.
"""

import math

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from holdfast.corruptions.filters import Image


def translate(image: Image, pixels: int) -> Image:
    """Shift the image to the right by whole pixels: column x becomes column x − pixels of the input."""
    width, result = image.shape[1], np.zeros_like(image)
    kept = slice(max(0, pixels), min(width, width + pixels))
    result[:, kept] = image[:, kept.start - pixels : kept.stop - pixels]
    return result


def rotate(image: Image, degrees: float) -> Image:
    """Rotate about the centre, clockwise, bilinear."""
    return np.array(Pillow.fromarray(image).rotate(-degrees, Pillow.Resampling.BILINEAR))


def shear(image: Image, degrees: float) -> Image:
    """Shift rows in proportion to their distance from the centre, bilinear."""
    return _about_centre(image, (1.0, math.tan(math.radians(degrees)), 1.0))


def scale_image(image: Image, factor: float) -> Image:
    """Scale about the centre within the same frame, bilinear."""
    return _about_centre(image, (1 / factor, 0.0, 1 / factor))


def _about_centre(image: Image, inverse: tuple[float, float, float]) -> Image:
    """Apply x ← a·x + b·y, y ← e·y with the origin at the image's centre."""
    height, width = image.shape[:2]
    a, b, e = inverse
    matrix = (a, b, width / 2 * (1 - a) - height / 2 * b, 0.0, e, height / 2 * (1 - e))
    picture = Pillow.fromarray(image).transform(
        (width, height), Pillow.Transform.AFFINE, matrix, Pillow.Resampling.BILINEAR
    )
    return np.array(picture)


def tilt(image: Image, degrees: float) -> Image:
    """Perspective of a camera tilted by the same angle about both axes, bilinear."""
    height, width = image.shape[:2]
    return cv2.warpPerspective(image, tilt_matrix(height, width, degrees), (width, height))


def tilt_matrix(height: int, width: int, degrees: float) -> NDArray[np.float64]:
    """P2·T·Rx·Ry·P1: lift the image to 3-D, rotate it, move it away by the focal length √(w²+h²), and project it.

    As published, the lift puts the image at depth 1, not 0: it is slightly smaller even at angle 0.
    """
    focal, angle = math.hypot(width, height), math.radians(degrees)
    cos, sin = math.cos(angle), math.sin(angle)
    lift = np.array([[1, 0, -width / 2], [0, 1, -height / 2], [0, 0, 1], [0, 0, 1]])
    about_x = np.array([[1, 0, 0, 0], [0, cos, -sin, 0], [0, sin, cos, 0], [0, 0, 0, 1]])
    about_y = np.array([[cos, 0, -sin, 0], [0, 1, 0, 0], [sin, 0, cos, 0], [0, 0, 0, 1]])
    push = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, focal], [0, 0, 0, 1]])
    project = np.array([[focal, 0, width / 2, 0], [0, focal, height / 2, 0], [0, 0, 1, 0]])
    return project @ push @ about_x @ about_y @ lift
