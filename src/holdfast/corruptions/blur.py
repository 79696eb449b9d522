"""Blurs: defocus, glass, motion, zoom and gaussian."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.corruptions.filters import (
    FLAT_STAYS,
    Field,
    Image,
    Images,
    each,
    motion,
    smooth_bytes,
    stack_arrays,
    stack_channels,
    stretch,
    strips,
    swap_rows_and_columns,
    to_bytes,
    unstack_channels,
    zoom_map,
    zoom_window,
)
from holdfast.corruptions.rng import Draws


def gaussian_blur(images: Images, _draws: Sequence[Draws], *, sigma: float, truncate: float = 4.0) -> Images:
    """Gaussian smoothing with replicated border.

    ImageNet-C, extra kind.
    """
    return unstack_channels(smooth_bytes(stack_channels(images), sigma, truncate=truncate), len(images))


@each
def defocus_blur(image: Image, _draws: Draws, *, radius: float, alias_sigma: float) -> Image:
    """Correlation with an anti-aliased disk, border reflect-101.

    ImageNet-C; the disk is not normalised after anti-aliasing: radii 8 and 10 brighten the image by 1.3 % and 1.1 %.
    """
    kernel, nudge = _disk(radius, alias_sigma)
    return to_bytes(cv2.filter2D(image, cv2.CV_32F, kernel, delta=nudge))


@lru_cache(maxsize=32)
def _disk(radius: float, alias_sigma: float) -> tuple[Field, float]:
    """The kernel, and an offset larger than float32's error, towards the reference's result for flat areas."""
    # as published: a grid of 17×17 up to radius 8. The disk of radius 8 fills it, so the anti-aliasing blur reflects
    # weight at its border, and the kernel sums to 1.01298 instead of 1
    reach, side = (8, 3) if radius <= 8 else (int(radius), 5)
    line = np.arange(-reach, reach + 1)
    disk = (line[:, None] ** 2 + line[None] ** 2 <= radius**2).astype(np.float32)
    disk /= disk.sum()
    kernel = cv2.GaussianBlur(disk, (side, side), alias_sigma)
    frame = int(np.argmax(kernel.any(axis=0)))  # zero border of small disks, cut off for speed
    nudge = 1e-4 if kernel.sum(dtype=np.float64) >= 1 else -1e-4
    return np.ascontiguousarray(kernel[frame : len(kernel) - frame, frame : len(kernel) - frame]), nudge


def glass_blur(images: Images, draws: Sequence[Draws], *, sigma: float, delta: int, passes: int) -> Images:
    """Gaussian blur, copy each pixel from a random neighbour, Gaussian blur again.

    ImageNet-C; the published "swap" acts on views and copies one way only. Pixels are visited from the last to the
    first, so a copy may take what an earlier copy left.
    """
    count, height, width = images.shape[:3]
    smoothed = unstack_channels(smooth_bytes(stack_channels(images), sigma), count)
    inner = (passes, height - 2 * delta, width - 2 * delta)
    offsets = stack_arrays([_offsets(source, inner, delta, width) for source in draws])  # N passes h w
    source = _copies((count, height, width), delta, offsets[:, 0])
    for number in range(1, passes):
        source = source.take(_copies((count, height, width), delta, offsets[:, number]), mode="clip")
    pixels = cv2.cvtColor(smoothed.reshape(-1, width, 3), cv2.COLOR_RGB2RGBA).view(np.uint32).ravel()
    shuffled = pixels.take(source, mode="clip").view(np.uint8).reshape(-1, width, 4)
    shuffled = cv2.cvtColor(shuffled, cv2.COLOR_RGBA2RGB).reshape(images.shape)
    return unstack_channels(smooth_bytes(stack_channels(shuffled), sigma), count)


def _copies(shape: tuple[int, int, int], delta: int, offset: NDArray[np.int32]) -> NDArray[Any]:
    """For one pass of copies, the index of the pixel before the pass that each pixel is copied from in the end.

    A copy from a pixel that was itself overwritten earlier in the pass continues from its source. Such chains are
    short, and pointer jumping follows all of them at once. The first half of the pointers are pixels after the pass;
    the second half, which point to themselves, are pixels before it.
    """
    _, height, width = shape
    inside = (slice(None), slice(delta + 1, height - delta + 1), slice(delta + 1, width - delta + 1))
    visited = np.zeros(shape, np.bool_)
    visited[inside] = True
    total = np.int32(visited.size)
    before = np.arange(total, 2 * total, dtype=np.int32)
    pointer = np.concatenate((before, before))
    target = before.reshape(shape)[inside]
    taken = target + offset
    chained = visited.ravel().take(taken - total, mode="clip")
    chained &= offset > 0
    taken -= total * chained
    after = pointer[:total]
    after.reshape(shape)[inside] = taken
    unresolved = np.flatnonzero(after < total)
    while unresolved.size:
        following = pointer.take(after.take(unresolved, mode="clip"), mode="clip")
        after[unresolved] = following
        unresolved = unresolved[following < total]
    return after - total


def _offsets(draws: Draws, shape: tuple[int, ...], delta: int, width: int) -> NDArray[np.int32]:
    """Offset of each pixel's source in the flattened image; drawn from the last pixel to the first."""
    # as published, the upper end is excluded (−δ … δ − 1), so that content drifts down and to the right
    if draws.literal:
        steps = draws.integers(-delta, delta, (*shape, 2))[:, ::-1, ::-1]
        return (steps[..., 1] * width + steps[..., 0]).astype(np.int32)
    steps = np.arange(-delta, delta, dtype=np.int32)
    return (steps[:, None] * np.int32(width) + steps).ravel().take(draws.integers(0, 4 * delta**2, shape), mode="clip")


@each
def motion_blur(image: Image, draws: Draws, *, radius: int, sigma: float) -> Image:
    """Motion blur: a one-sided Gaussian kernel along a random angle within ±45°.

    ImageNet-C used ImageMagick, whose PNG floors; imagecorruptions truncates, too.
    """
    return motion_at(image, float(draws.uniform(-45, 45)), radius=radius, sigma=sigma)


def motion_at(image: Image, angle: float, *, radius: int, sigma: float) -> Image:
    """Motion blur at a given angle in degrees."""
    return to_bytes(motion(image, radius, sigma, angle, base=FLAT_STAYS))


def zoom_blur(images: Images, _draws: Sequence[Draws], *, step: float, count: int) -> Images:
    """Mean of the image and of its zooms by 1, 1 + step, ….

    ImageNet-C; the factors come from a floating-point ``arange``, whose length depends on rounding, so their count is
    part of the severities. The unzoomed image counts twice.
    """
    factors = np.arange(1, 1 + step * (count + 1), step)[:count].tolist()
    image = stack_channels(images).astype(np.float32)
    layers = image * np.float32(2)
    zoom = Zoomer(image)
    for factor in factors[1:]:
        zoom.add_to(layers, factor)
    layers *= np.float32(1 / (count + 1))
    layers += np.float32(1e-4)  # larger than the rounding of a float32 sum, so that truncation keeps flat areas
    return unstack_channels(to_bytes(layers), len(images))


class Zoomer:
    """Adds zooms of one image to a sum of layers; holds the transposed image and scratch memory."""

    def __init__(self, image: Field) -> None:
        self.sideways = swap_rows_and_columns(image)
        self.wide = np.empty_like(image)
        longest = max(strip.stop - strip.start for values in (image, self.sideways) for strip in strips(values.shape))
        self.scratch = np.empty((2, longest * max(image[0].size, self.sideways[0].size)), np.float32)

    def add_to(self, layers: Field, factor: float) -> None:
        """Add the image's centre, zoomed to the full size: bilinear, align_corners as in scipy.ndimage.zoom."""
        height, width = layers.shape[:2]
        (top, rows), (left, columns) = zoom_window(height, factor), zoom_window(width, factor)
        window, wide = self.sideways[left : left + columns, top : top + rows], self.wide[:rows]
        lower, weight = zoom_map(width, factor)
        for strip in strips(self.sideways.shape):
            wide[:, strip] = swap_rows_and_columns(stretch(window, lower[strip], weight[strip], self.scratch))
        lower, weight = zoom_map(height, factor)
        for strip in strips(layers.shape):
            layers[strip] += stretch(wide, lower[strip], weight[strip], self.scratch)
