"""Geometric perturbations of ImageNet-P: translate, rotate, shear, scale, tilt; filled with black."""

import math

import numpy as np
import pytest

from holdfast.corruptions import perturb
from holdfast.corruptions.geometry import tilt_matrix
from tests.corruptions.test_sequences import (
    backwards,
    cropped,
    image_for,
)


@pytest.mark.parametrize(("preset", "tilt"), [("imagenet", 1.0), ("cifar", 0.75), ("tiny", 1.0)])
def test_geometric_kinds_move_pixels_where_they_say(preset, tilt):
    image = image_for(preset)
    angle = math.radians(-11)
    cos, sin, tan = math.cos(angle), math.sin(angle), math.tan(angle)
    first, step = (0.7, 0.02) if preset == "cifar" else (0.4, 0.025)
    factor = first + 26 * step
    height, width = image.shape[:2]
    tilted = np.linalg.inv(tilt_matrix(height, width, tilt * (4 - 15)))

    def perspective(x, y):  # OpenCV counts from the first pixel's centre, not from its corner
        u, v, w = np.einsum(
            "ij,j...->i...", tilted, np.stack([x + width / 2 - 0.5, y + height / 2 - 0.5, np.ones_like(x)])
        )
        return u / w + 0.5 - width / 2, v / w + 0.5 - height / 2

    cases = [
        ("rotate", 4, lambda x, y: (cos * x + sin * y, cos * y - sin * x)),
        ("shear", 4, lambda x, y: (x + tan * y, y)),
        ("scale", 26, lambda x, y: (x / factor, y / factor)),
        ("tilt", 4, perspective),
    ]
    for kind, number, inverse in cases:
        ours = perturb(image, kind, preset=preset)[number].astype(float)
        expected = cropped(backwards(image, inverse), preset)
        inner = slice(6, -6)
        assert np.abs(ours - expected)[inner, inner].mean() < 1.5, kind


def test_tilt_matrix_is_the_product_of_its_five_parts():
    height, width, angle = 256, 340, math.radians(7)
    focal = math.sqrt(height**2 + width**2)
    for x, y in [(0, 0), (340, 0), (100, 200)]:
        a, b = x - width / 2, y - height / 2
        a, c = a * math.cos(angle) - math.sin(angle), a * math.sin(angle) + math.cos(angle)  # from depth 1, vertically
        b, c = b * math.cos(angle) - c * math.sin(angle), b * math.sin(angle) + c * math.cos(angle)
        depth = c + focal
        expected = (focal * a / depth + width / 2, focal * b / depth + height / 2)
        u, v, w = tilt_matrix(height, width, 7) @ [x, y, 1]
        np.testing.assert_allclose((u / w, v / w), expected)


def test_an_untilted_picture_is_half_a_pixel_smaller_at_its_corners():
    """At depth 1 + f a corner 128 from the centre moves by 128/(f + 1), f = 256·√2 = 362.04: 0.3526 along each axis."""
    for corner, towards in [((0, 0), 0.3526), ((256, 256), 256 - 0.3526)]:
        u, v, w = tilt_matrix(256, 256, 0) @ [*corner, 1]
        assert (u / w, v / w) == pytest.approx((towards, towards), abs=1e-4)
