"""Filters shared by corruptions: byte conversion, strips, Gaussian smoothing, motion kernels, clipped zoom."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from holdfast.corruptions.rng import Draws

Image = NDArray[np.uint8]  # H W 3
Images = NDArray[np.uint8]  # N H W 3, all of one size
Field = NDArray[np.float32]

STRIP_VALUES = 1 << 16  # values per strip, so that several passes stay in a core's own cache
FLAT_STAYS = 1e-4  # larger than the rounding of a float32 sum, so that truncation keeps flat areas


def each(function: Callable[..., Image]) -> Callable[..., Images]:
    """Turn a corruption of one image into a corruption of a batch of images."""

    @functools.wraps(function)
    def batched(images: Images, draws: Sequence[Draws], **parameters: Any) -> Images:
        return stack_arrays(
            [function(image, source, **parameters) for image, source in zip(images, draws, strict=True)]
        )

    return batched


def stack_arrays(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Stack arrays of one shape along a new first axis; a single one is not copied."""
    return arrays[0][None] if len(arrays) == 1 else np.stack(arrays)


def stack_rows(images: NDArray[Any]) -> NDArray[Any]:
    """Stack images on top of each other, N·H W …, for pixel-wise operations."""
    return images.reshape(-1, *images.shape[2:])


def stack_channels(images: NDArray[Any]) -> NDArray[Any]:
    """Stack images as channels of one image, H W (N·C), so that one filter call serves all."""
    if len(images) == 1:
        return images[0]
    return np.ascontiguousarray(images.transpose(1, 2, 0, 3)).reshape(*images.shape[1:3], -1)


def unstack_channels(channels: NDArray[Any], count: int) -> NDArray[Any]:
    """Split the channels of `stack_channels` into images again."""
    if count == 1:
        return channels[None]
    split = channels.reshape(*channels.shape[:2], count, -1)
    return np.ascontiguousarray(split.transpose(2, 0, 1, 3))


def swap_rows_and_columns(values: NDArray[Any]) -> NDArray[Any]:
    """Exchange rows and columns."""
    if values.ndim == 2 or values.shape[2] <= 4:
        return cv2.transpose(values)
    return np.ascontiguousarray(values.swapaxes(0, 1))


def to_bytes(values: Field) -> NDArray[np.uint8]:
    """Clamp to 0..255 in place and cast to uint8."""
    # the cast truncates, as in all published generators: rounding would brighten every result by half a level
    np.clip(values, 0, 255, out=values)
    return values.astype(np.uint8)


def strips(shape: tuple[int, ...]) -> Iterator[slice]:
    """Slices of rows, small enough that several passes over them stay in the cache."""
    rows = max(1, STRIP_VALUES // math.prod(shape[1:]))
    return (slice(start, min(start + rows, shape[0])) for start in range(0, shape[0], rows))


@lru_cache(maxsize=64)
def gaussian_taps(sigma: float, truncate: float = 4.0) -> NDArray[np.float64]:
    """Normalised taps of the sampled Gaussian of radius int(truncate·σ + ½), as in SciPy."""
    radius = int(truncate * sigma + 0.5)
    offsets = np.arange(-radius, radius + 1)
    taps = np.exp(-0.5 * (offsets / sigma) ** 2) if radius else np.ones(1)
    return taps / taps.sum()


def smooth(values: NDArray[Any], sigma: float, *, truncate: float = 4.0, nudge: float = 0.0) -> Field:
    """Separable Gaussian with replicated border, float32."""
    taps = gaussian_taps(sigma, truncate)
    return cv2.sepFilter2D(values, cv2.CV_32F, taps, taps, delta=nudge, borderType=cv2.BORDER_REPLICATE)


def smooth_bytes(image: NDArray[np.uint8], sigma: float, *, truncate: float = 4.0) -> NDArray[np.uint8]:
    """Separable Gaussian with replicated border, truncated to bytes."""
    return to_bytes(smooth(image, sigma, truncate=truncate, nudge=_white_nudge(sigma, truncate)))


@lru_cache(maxsize=64)
def _white_nudge(sigma: float, truncate: float) -> float:
    """An offset larger than float32's error, towards the reference's result for flat white: 255 or 254."""
    # the reference sums its taps in float64: for some σ they add up to a little less than 1, and truncation turns
    # flat white into 254
    white = np.ones(1)
    for _ in range(2):
        white = gaussian_filter1d(white, sigma, truncate=truncate, mode="nearest")
    return 1e-4 if white[0] >= 1 else -1e-4


def trail(radius: int, sigma: float, angle: float, shape: tuple[int, ...]) -> list[tuple[int, int, float]]:
    """The motion kernel as (row, column, weight): half a Gaussian that starts at the pixel and follows the angle.

    ImageMagick's motion blur. Offsets beyond the image's size end the kernel and the weights are not renormalised,
    which darkens tiny images, as in imagecorruptions.
    """
    down, across = math.sin(math.radians(angle)), math.cos(math.radians(angle))
    taps: dict[tuple[int, int], float] = {}
    for step, weight in enumerate(_trail_weights(radius, sigma)):
        row, column = math.ceil(step * down - 0.5), math.ceil(step * across - 0.5)
        if abs(row) >= shape[0] or abs(column) >= shape[1]:
            break
        taps[row, column] = taps.get((row, column), 0.0) + weight
    return [(row, column, weight) for (row, column), weight in taps.items()]


@lru_cache(maxsize=64)
def _trail_weights(radius: int, sigma: float) -> tuple[float, ...]:
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    return tuple((weights / weights.sum()).tolist())


def motion(values: NDArray[Any], radius: int, sigma: float, angle: float, *, base: float = 0.0) -> Field:
    """Motion blur in float32, plus ``base``: the weighted sum of shifted copies, border replicated."""
    taps = trail(radius, sigma, angle, values.shape)
    rows, columns = [tap[0] for tap in taps], [tap[1] for tap in taps]
    top, left = max(0, -min(rows)), max(0, -min(columns))
    bottom, right = max(0, *rows), max(0, *columns)
    padded = cv2.copyMakeBorder(values, top, bottom, left, right, cv2.BORDER_REPLICATE).astype(np.float32, copy=False)
    blurred = np.full(values.shape, base, np.float32)
    width = values.shape[1]
    for strip in strips(values.shape):
        target = blurred[strip]
        for row, column, weight in taps:
            shifted = padded[strip.start + top + row : strip.stop + top + row, left + column : left + column + width]
            cv2.scaleAdd(shifted, weight, target, target)
    return blurred


def zoom_window(side: int, factor: float) -> tuple[int, int]:
    """First index and length of the centre part of an axis that a zoom by ``factor`` enlarges."""
    length = math.ceil(side / factor)
    return (side - length) // 2, length


@lru_cache(maxsize=256)
def zoom_map(side: int, factor: float, *, trimmed: bool = True) -> tuple[NDArray[np.intp], Field]:
    """For each output index, the lower source index within the window and the weight of its upper neighbour.

    scipy.ndimage.zoom of order 1, which aligns corners. Trimmed: a result longer than the axis is cut at both ends.
    """
    length = zoom_window(side, factor)[1]
    zoomed = round(length * factor)
    places = np.arange(zoomed) * ((length - 1) / (zoomed - 1))
    if trimmed:
        start = (zoomed - side) // 2
        places = places[start : start + side]
    lower = np.minimum(places.astype(np.intp), length - 2)
    return lower, (places - lower).astype(np.float32)


def stretch(values: Field, lower: NDArray[np.intp], weight: Field, scratch: Field | None = None) -> Field:
    """Linear interpolation along the first axis, ``lower`` ascending; ``scratch`` (2 × values) saves memory traffic."""
    first = int(lower[0])
    needed = np.ascontiguousarray(values[first : int(lower[-1]) + 2])
    shape = (len(lower), *values.shape[1:])
    if scratch is None:
        scratch = np.empty((2, math.prod(shape)), np.float32)
    result, step = (part[: math.prod(shape)].reshape(shape) for part in scratch)
    np.take(needed, lower - first, axis=0, out=result, mode="clip")
    np.take(needed, lower - (first - 1), axis=0, out=step, mode="clip")
    step -= result
    step *= weight.reshape(-1, *[1] * (values.ndim - 1))
    result += step
    return result
