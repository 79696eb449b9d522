"""Digital corruptions: contrast, elastic transform, pixelate, JPEG compression and saturate."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow
from scipy.ndimage import gaussian_filter1d

from holdfast.corruptions.filters import (
    Field,
    Image,
    Images,
    each,
    gaussian_taps,
    stack_arrays,
    stack_rows,
    strips,
    to_bytes,
)
from holdfast.corruptions.rng import Draws

LARGEST_MATRIX = 2048  # rows of a smoothing matrix


def contrast(images: Images, _draws: Sequence[Draws], *, gain: float) -> Images:
    """Reduced contrast: (u − μ)·gain + μ with μ the mean of each channel.

    ImageNet-C.
    """
    means = np.array([cv2.mean(image)[:3] for image in images])[:, None] / 255  # N 1 3
    levels = np.arange(256)[:, None] / 255.0
    tables = (np.clip((levels - means) * gain + means, 0, 1) * 255).astype(np.uint8)  # N 256 3
    return stack_arrays([cv2.LUT(image, table[None]) for image, table in zip(images, tables, strict=True)])


@each
def pixelate(image: Image, _draws: Draws, *, scale: float) -> Image:
    """Downsample with a box filter to int(side·scale), then repeat pixels.

    ImageNet-C enlarges with a box filter, which gives the same bytes at 32 and 224 px; imagecorruptions repeats pixels
    at every size. Pillow does both: which pixel OpenCV repeats depends on its version.
    """
    height, width = image.shape[:2]
    small = Pillow.fromarray(image).resize((int(width * scale), int(height * scale)), Pillow.Resampling.BOX)
    return np.array(small.resize((width, height), Pillow.Resampling.NEAREST))  # np.asarray would be read-only


@each
def jpeg_compression(image: Image, _draws: Draws, *, quality: int) -> Image:
    """Encode and decode as JPEG, chroma at half resolution (4:2:0).

    ImageNet-C used Pillow; OpenCV's encoder gives the same bytes and is quicker on small images.
    """
    _, coded = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])
    return cv2.cvtColor(cv2.imdecode(coded, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def saturate(images: Images, _draws: Sequence[Draws], *, factor: float, shift: float) -> Images:
    """Scale and shift the saturation of HSV.

    ImageNet-C, extra kind; grey pixels have hue 0, so they turn reddish where the shift is positive.
    """
    ratio, lowest = _saturation_tables(factor, shift)
    pixels, result = stack_rows(images), np.empty_like(stack_rows(images))
    for rows in strips(pixels.shape):
        part = pixels[rows]
        red, green, blue = cv2.split(part)
        value, least = cv2.max(cv2.max(red, green), blue), cv2.min(cv2.min(red, green), blue)
        index = (value.astype(np.uint16) << 8) | least
        top = cv2.merge([value] * 3)
        middle = top - (top - part) * cv2.merge([ratio.take(index, mode="clip")] * 3)
        bottom = cv2.merge([lowest.take(index, mode="clip")] * 3)
        vivid = np.where(part == cv2.merge([least] * 3), bottom, middle.astype(np.uint8))
        np.copyto(vivid, top, where=part == top)
        if shift:
            grey = value == least
            vivid[grey, 1:] = lowest.take(index[grey])[:, None]
        result[rows] = vivid
    return result.reshape(images.shape)


@lru_cache(maxsize=16)
def _saturation_tables(factor: float, shift: float) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Tables at 256·V + minimum: S'/S, which scales the middle channel's distance from V, and the new minimum."""
    value, least = np.arange(256)[:, None] / 255.0, np.arange(256)[None] / 255.0
    before = np.divide(value - least, value, out=np.zeros((256, 256)), where=value > 0)
    after = np.clip(before * factor + shift, 0, 1)
    ratio = np.divide(after, before, out=np.zeros((256, 256)), where=before > 0)
    lowest = (np.clip(value * (1 - after), 0, 1) * 255).astype(np.uint8)
    return np.clip(ratio, 0, 256).ravel(), lowest.ravel()


def elastic_transform(
    images: Images, draws: Sequence[Draws], *, alpha: float, sigma: float | None = None, affine: float | None = None
) -> Images:
    """Displace pixels along a smoothed random field.

    ImageNet-C applies a random affine map first and has σ in pixels. imagecorruptions (σ and affine None) has no affine
    map, a σ of 1 % of each side and noise of ±0.5 % of the height on both axes. They are different corruptions.
    """
    shape = images.shape[1:3]
    if sigma is None or affine is None:  # imagecorruptions uses the height for both axes, also of wide images
        reach, sigmas, values = 0.005 * shape[0], (0.01 * shape[0], 0.01 * shape[1]), images
    else:
        pairs = zip(images, draws, strict=True)
        reach, sigmas, values = (
            1.0,
            (sigma, sigma),
            stack_arrays([_jitter_affine(image, affine, source) for image, source in pairs]),
        )
    noise = np.concatenate([source.uniform(-reach, reach, (2, *shape)) for source in draws])  # 2N H W
    fields = smooth_fields(cv2.merge(list(noise.astype(np.float32, copy=False))), sigmas)  # H W 2N
    fields *= np.float32(alpha)
    return to_bytes(_displace_pixels(values, fields))


def _jitter_affine(image: Image, reach: float, draws: Draws) -> Field:
    """Warp by the affine map that moves three points around the centre by random offsets, axes ordered as published."""
    # the published code takes (rows, columns) for OpenCV's (x, y): kept, it matters for images that are not square
    size = np.array(image.shape[:2], np.float32)
    centre, third = size // 2, min(image.shape[:2]) // 3
    points = np.array([centre + third, [centre[0] + third, centre[1] - third], centre - third], np.float32)
    moved = points + draws.uniform(-reach, reach, points.shape).astype(np.float32)
    matrix = cv2.getAffineTransform(points, moved)
    size_across_down = (image.shape[1], image.shape[0])
    return cv2.warpAffine(image.astype(np.float32), matrix, size_across_down, borderMode=cv2.BORDER_REFLECT_101)


def smooth_fields(fields: Field, sigmas: tuple[float, float]) -> Field:
    """Gaussian smoothing of H W C, truncated at 3 σ, border reflect (scipy's, which repeats the edge)."""
    if max(sigmas) == 0:
        return fields
    if 6 * max(sigmas) > min(fields.shape[:2]):  # reflection folds many taps onto few pixels: a matrix is faster
        if max(fields.shape[:2]) > LARGEST_MATRIX:
            return smoothed_by_taps(fields, sigmas)
        rows, columns = _smoother(fields.shape[0], sigmas[0]), _smoother(fields.shape[1], sigmas[1])
        return np.stack([rows @ field @ columns.T for field in np.moveaxis(fields, -1, 0)], axis=-1)
    down, across = (gaussian_taps(sigma, 3.0) for sigma in sigmas)
    return cv2.sepFilter2D(fields, cv2.CV_32F, across, down, borderType=cv2.BORDER_REFLECT)


@lru_cache(maxsize=8)
def _smoother(side: int, sigma: float) -> Field:
    return gaussian_filter1d(np.eye(side), sigma, axis=0, mode="reflect", truncate=3.0).astype(np.float32)


def smoothed_by_taps(fields: Field, sigmas: tuple[float, float]) -> Field:
    """The same smoothing for very long images, whose matrix would take gigabytes."""
    for axis, sigma in enumerate(sigmas):
        fields = gaussian_filter1d(fields, sigma, axis=axis, mode="reflect", truncate=3.0)
    return fields


def _displace_pixels(values: NDArray[Any], fields: Field) -> Field:
    """Bilinear samples of N H W 3 at (column + field 2n, row + field 2n + 1), border reflect (repeats the edge).

    Four nearest-neighbour look-ups with explicit weights, because OpenCV before 5 interpolates on a 1/32-pixel grid.
    """
    result = np.empty(values.shape, np.float32)
    columns = np.arange(values.shape[2], dtype=np.float32)
    planes = cv2.split(fields)
    for image, across, down, moved in zip(values, planes[::2], planes[1::2], result, strict=True):
        source = image.astype(np.float32, copy=False)
        for strip in strips(image.shape):
            rows = np.arange(strip.start, strip.stop, dtype=np.float32)[:, None]
            moved[strip] = _bilinear(source, across[strip] + columns, down[strip] + rows)
    return result


def _bilinear(image: Field, x: Field, y: Field) -> Field:
    left, top = np.floor(x), np.floor(y)
    x -= left
    y -= top
    columns, rows = left.astype(np.int16), top.astype(np.int16)

    def at(columns: NDArray[np.int16], rows: NDArray[np.int16]) -> Field:
        return cv2.remap(image, cv2.merge([columns, rows]), None, cv2.INTER_NEAREST, borderMode=cv2.BORDER_REFLECT)

    def between(low: Field, high: Field, weight: Field) -> Field:
        high -= low
        high *= weight
        low += high
        return low

    next_columns, next_rows, weight = columns + np.int16(1), rows + np.int16(1), cv2.merge([x] * 3)
    upper = between(at(columns, rows), at(next_columns, rows), weight)
    lower = between(at(columns, next_rows), at(next_columns, next_rows), weight)
    return between(upper, lower, cv2.merge([y] * 3))
