"""Filters that corruptions share, against SciPy and against loops over pixels."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter, zoom

from holdfast.corruptions.filters import (
    gaussian_taps,
    motion,
    smooth,
    smooth_bytes,
    stack_channels,
    stretch,
    strips,
    to_bytes,
    trail,
    unstack_channels,
    zoom_map,
    zoom_window,
)


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_bytes_are_clamped_and_truncated_never_rounded():
    assert to_bytes(np.array([-3, 0.99, 254.999, 300], np.float32)).tolist() == [0, 0, 254, 255]


@pytest.mark.parametrize("sigma", [0.4, 1.0, 2.5])
def test_smoothing_is_scipys(sigma):
    image = noise(20, 24, 3)
    expected = gaussian_filter(image.astype(np.float64), (sigma, sigma, 0), mode="nearest")
    assert gaussian_taps(sigma).sum() == pytest.approx(1)
    np.testing.assert_allclose(smooth(image, sigma), expected, atol=1e-3)


@pytest.mark.parametrize("sigma", [0.4, 0.7, 1.0, 1.5, 3.0])
def test_flat_white_is_what_scipy_makes_of_it(sigma):
    white = np.full((16, 16, 3), 255, np.uint8)
    expected = gaussian_filter(white / 255.0, (sigma, sigma, 0), mode="nearest") * 255
    assert set(np.unique(smooth_bytes(white, sigma))) == set(np.unique(np.clip(expected, 0, 255).astype(np.uint8)))


def test_channels_of_many_images_come_back():
    for images in (noise(1, 5, 6, 3), noise(4, 5, 6, 3)):
        assert np.array_equal(unstack_channels(stack_channels(images), len(images)), images)


@pytest.mark.parametrize("shape", [(1, 7, 3), (1000, 500, 3), (3, 200_000)])
def test_strips_cover_every_row_once(shape):
    rows = [row for strip in strips(shape) for row in range(strip.start, strip.stop)]
    assert rows == list(range(shape[0]))


@pytest.mark.parametrize("angle", [-45, 0, 30, 90])
def test_motion_is_the_weighted_sum_of_shifted_copies(angle):
    image = noise(15, 17, 3)
    expected = np.zeros(image.shape)
    for row in range(15):
        for column in range(17):
            for down, across, weight in trail(4, 2.0, angle, image.shape):
                y, x = min(max(row + down, 0), 14), min(max(column + across, 0), 16)
                expected[row, column] += weight * image[y, x]
    np.testing.assert_allclose(motion(image, 4, 2.0, angle), expected, atol=1e-3)


def test_a_trail_starts_at_the_pixel_and_fades_along_the_angle():
    taps = trail(6, 3.0, 0, (64, 64))
    assert [tap[:2] for tap in taps] == [(0, step) for step in range(13)]
    weights = [tap[2] for tap in taps]
    assert sum(weights) == pytest.approx(1)
    assert weights == sorted(weights, reverse=True)
    assert sum(tap[2] for tap in trail(6, 3.0, 0, (64, 5))) < 1  # a tiny image cuts it off, and gets darker


@pytest.mark.parametrize("factor", [1.06, 1.2, 1.31])
def test_a_zoom_is_scipys_of_the_centre(factor):
    line = noise(40).astype(np.float32)
    start, length = zoom_window(40, factor)
    whole = zoom(line[start : start + length].astype(np.float64), factor, order=1)
    cut = (len(whole) - 40) // 2
    lower, weight = zoom_map(40, factor)
    np.testing.assert_allclose(stretch(line[start : start + length], lower, weight), whole[cut : cut + 40], atol=1e-3)
