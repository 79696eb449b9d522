"""What moves pixels in ImageNet-C-bar and CIFAR-10-C-bar: refraction, turning blur, ripples, twirls, colour fringes.

Mintun, Kirillov and Xie, NeurIPS 2021; magnitudes and sizes as in `holdfast.corruptions.c_bar_noise`.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from holdfast.corruptions.c_bar_draws import permuted, signs
from holdfast.corruptions.c_bar_noise import Plane, length_unit
from holdfast.corruptions.filters import Image, Images, each, gaussian_taps, stack_channels, strips, unstack_channels
from holdfast.corruptions.rng import Draws

Taps = tuple[list[NDArray[np.intp]], tuple[NDArray[np.float64], ...]]  # four per place: indices and weights

REFRACTIVE_INDEX = 4
FLAT = 0.999  # cosine of a slope below which light is not bent
ROTATIONS = 21
SPLINE_FRAME = 2  # pixels that a cubic spline reaches beyond the image
BLOCKS, BLOCKS_OF_224 = 3, 5  # along the shorter side


@each
def caustic_refraction(image: Image, draws: Draws, *, magnitude: float) -> Image:
    """Look through a wavy surface of water: light is bent where it is steep, and the slope is lit from one side."""
    height, width = image.shape[:2]
    time, size = float(draws.uniform(0.5, 2)), length_unit(image) * float(draws.uniform(0.75, 1.25))
    surface = _smooth(_caustics((height, width), time=time, size=size))
    framed = np.pad(surface, 1)  # the surface is 0 outside, so that the frame is steep
    down, across = framed[2:, 1:-1] - framed[:-2, 1:-1], framed[1:-1, 2:] - framed[1:-1, :-2]
    values: NDArray[np.float64] = (image / np.float32(255)).reshape(-1, 3).astype(np.float64)
    bent, rows, columns = _refract(down, across, reach=0.05 * magnitude * length_unit(image))
    places = np.divmod(bent, width)
    values[bent] = bilinear(values.reshape(height, width, 3), places[0] + rows, places[1] + columns)
    light = 0.2 * magnitude
    values = values.reshape(height, width, 3)
    values -= cv2.merge([light * across] * 3)
    values += cv2.merge([light * down] * 3)
    np.clip(values, 0, 1, out=values)
    values *= 255
    return values.astype(np.uint8)


def _caustics(shape: tuple[int, int], *, time: float, size: float) -> Plane:
    """The pattern of light at the bottom of a pool, in [0, 1]; it repeats where it is smaller than the image.

    The original takes sines and cosines of sums t ± i; here they follow from those of i and t.
    """
    p, q = (((np.arange(side) / size) % 1) * 6.28318530718 - 250 for side in shape)
    p = p[:, None]
    brightness = np.ones(shape)
    waves = (np.sin(p), np.cos(p), np.sin(q), np.cos(q))
    for turn in range(1, 6):
        t = time * (1 - 3.5 / turn)
        sin_t, cos_t = math.sin(t), math.cos(t)
        sin_i, cos_i, sin_j, cos_j = waves
        i = p + (cos_t * cos_i + sin_t * sin_i) + (sin_t * cos_j + cos_t * sin_j)  # cos(t − i) + sin(t + j)
        j = q + (sin_t * cos_j - cos_t * sin_j) + (cos_t * cos_i - sin_t * sin_i)  # sin(t − j) + cos(t + i)
        sin_i, cos_i, sin_j, cos_j = waves = (np.sin(i), np.cos(i), np.sin(j), np.cos(j))
        a = p * 0.005 / (sin_i * cos_t + cos_i * sin_t)
        b = q * 0.005 / (cos_j * cos_t - sin_j * sin_t)
        brightness += 1 / np.sqrt(a * a + b * b)
    brightness = np.abs(1.17 - (brightness / 5) ** 1.4)
    for _ in range(3):
        brightness *= brightness  # the eighth power
    return np.minimum(brightness, 1)


def _smooth(field: Plane) -> Plane:
    """Gaussian of σ = 1 to a distance of 4, borders mirrored with the edge repeated."""
    taps = gaussian_taps(1.0, 4.0)
    return cv2.sepFilter2D(field, cv2.CV_64F, taps, taps, borderType=cv2.BORDER_REFLECT)


def _refract(down: Plane, across: Plane, *, reach: float) -> tuple[NDArray[np.intp], Plane, Plane]:
    """The flat indices of pixels that are steep enough to bend light, and how far down and to the right they look."""
    steepness = (down * down + across * across).ravel()
    bent = np.flatnonzero(1 / np.sqrt(1 + steepness) < FLAT)
    steepness = steepness[bent]
    cosine = 1 / np.sqrt(1 + steepness)
    slope = np.sqrt(steepness)
    sine = slope * cosine
    inside = sine / REFRACTIVE_INDEX
    distance = reach * (sine * np.sqrt(1 - inside * inside) - cosine * inside) / slope  # sin(θ − arcsin(sin θ / η))
    return bent, np.round(distance * down.ravel()[bent], 3), np.round(distance * across.ravel()[bent], 3)


def bilinear(
    image: NDArray[np.float64], rows: NDArray[np.float64], columns: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Samples of H W 3 between pixels, columns first; all is black outside the image."""
    height, width = image.shape[:2]
    framed = np.zeros((height + 2, width + 2, 3))
    framed[1:-1, 1:-1] = image
    top, left = np.floor(rows), np.floor(columns)
    low, right = (rows - top)[:, None], (columns - left)[:, None]
    high, near = (1 - rows + top)[:, None], (1 - columns + left)[:, None]
    y = [_framed_index(top + step, height) * (width + 2) for step in (0, 1)]
    x = [_framed_index(left + step, width) for step in (0, 1)]
    flat = framed.reshape(-1, 3)
    upper = flat[y[0] + x[0]] * near + flat[y[0] + x[1]] * right
    lower = flat[y[1] + x[0]] * near + flat[y[1] + x[1]] * right
    return upper * high + lower * low


def _framed_index(places: NDArray[np.float64], side: int) -> NDArray[np.intp]:
    return np.clip(places + 1, 0, side + 1).astype(np.intp)


def circular_motion_blur(images: Images, _draws: Sequence[Draws], *, magnitude: float) -> Images:
    """Average the image over rotations about its centre, up to 1.5 degrees per magnitude to either side.

    As scipy.ndimage.rotate of order 3; the corners get darker, because nothing is known outside.
    """
    frame = (SPLINE_FRAME, SPLINE_FRAME, SPLINE_FRAME, SPLINE_FRAME)
    coefficients = stack_channels(np.stack([_spline_coefficients(image) for image in images]))  # H W 3N
    framed = cv2.copyMakeBorder(coefficients, *frame, cv2.BORDER_REFLECT_101)
    turns = np.linspace(-1, 1, ROTATIONS)
    weights = np.exp(-2 * turns**2)
    result = np.empty(coefficients.shape, np.uint8)
    for strip in strips((len(result), 2 * result[0].size)):  # twice, for values of 64 bits
        total = np.zeros(result[strip].shape, np.float32)  # the original adds and divides in float32
        for turn, weight in zip(turns, weights, strict=True):
            total += weight * _turned_strip(framed, strip, math.radians(1.5 * magnitude * turn))
        result[strip] = np.clip(255 * (total / np.float32(weights.sum())), 0, 255).astype(np.uint8)
    return unstack_channels(result, len(images))


def _spline_coefficients(image: Image) -> NDArray[np.float64]:
    """What cubic B-splines must be weighted with to pass through the pixels, borders mirrored."""
    planes = cv2.split(image / np.float32(255))
    return cv2.merge([ndimage.spline_filter(plane, 3, mode="mirror") for plane in planes])


def _turned_strip(framed: NDArray[np.float64], strip: slice, angle: float) -> NDArray[np.float64]:
    """Some rows of the images turned about their centre, rounded to float32; what comes from outside is black."""
    (height, width), channels = (side - 2 * SPLINE_FRAME for side in framed.shape[:2]), framed.shape[2]
    y, x = np.arange(strip.start, strip.stop)[:, None] - (height - 1) / 2, np.arange(width) - (width - 1) / 2
    rows = math.cos(angle) * y + math.sin(angle) * x + (height - 1) / 2
    columns = -math.sin(angle) * y + math.cos(angle) * x + (width - 1) / 2
    outside = (rows < 0) | (rows > height - 1) | (columns < 0) | (columns > width - 1)
    np.clip(rows, 0, height - 1, out=rows)
    np.clip(columns, 0, width - 1, out=columns)
    top, left = np.floor(rows), np.floor(columns)
    down, across = (_spline_weights(fraction) for fraction in (rows - top, columns - left))
    places = cv2.merge([left.astype(np.int16), top.astype(np.int16)])
    result = np.zeros((*rows.shape, channels))
    for i in range(4):
        row = np.zeros_like(result)
        for j in range(4):
            window = framed[i + 1 : i + 1 + height, j + 1 : j + 1 + width]
            tap = cv2.remap(window, places, None, cv2.INTER_NEAREST, borderMode=cv2.BORDER_REPLICATE)
            tap *= cv2.merge([across[j]] * channels)
            row += tap
        row *= cv2.merge([down[i]] * channels)
        result += row
    result[outside] = 0
    return result.astype(np.float32).astype(np.float64)


def _spline_weights(fraction: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """How much the four pixels around a place count in a cubic B-spline, in the order of operations of SciPy."""
    rest = 1 - fraction
    near = (fraction * fraction * (fraction - 2) * 3 + 4) / 6
    far = (rest * rest * (rest - 2) * 3 + 4) / 6
    first = rest * rest * rest / 6
    return first, near, far, 1 - first - near - far


@each
def transverse_chromatic_abberation(image: Image, draws: Draws, *, magnitude: float) -> Image:
    """Enlarge the three channels by different factors, in random order; all get smoother. Spelled as published."""
    zooms = permuted(draws, (1.0, 1 + 0.025 * magnitude, 1 + 0.05 * magnitude))
    planes = [_enlarge(plane, zoom) for plane, zoom in zip(cv2.split(image), zooms, strict=True)]
    return cv2.merge(planes)


def _enlarge(plane: NDArray[np.uint8], zoom: float) -> NDArray[np.uint8]:
    """The middle of an enlarged plane, corners on corners: cubic B-spline weights on the pixels, rounded half up."""
    rows, columns = (_zoomed_taps(side, zoom) for side in plane.shape)
    if zoom == 1:
        result = _tap_by_tap(plane, rows, columns)
    else:
        across = _weighted(np.ascontiguousarray(plane.T).astype(np.float64), columns)
        result = _weighted(np.ascontiguousarray(across.T), rows)
    return np.clip(np.floor(result + 0.5), 0, 255).astype(np.uint8)


def _weighted(values: Plane, taps: Taps) -> Plane:
    """Sums of four rows each."""
    first, *others = (values.take(rows, axis=0) * weight[:, None] for rows, weight in zip(*taps, strict=True))
    for other in others:
        first += other
    return first


def _tap_by_tap(plane: NDArray[np.uint8], rows: Taps, columns: Taps) -> Plane:
    """The same sum of 16 products in the order of SciPy: factor 1 gives multiples of 1/36, and ties among them."""
    taken = [plane.take(taps, axis=1).astype(np.float64) for taps in columns[0]]
    result, tap = np.zeros(plane.shape), np.empty(plane.shape)
    for taps, row_weight in zip(*rows, strict=True):
        for values, column_weight in zip(taken, columns[1], strict=True):
            np.take(values, taps, axis=0, out=tap)
            tap *= row_weight[:, None]
            tap *= column_weight
            result += tap
    return result


@lru_cache(maxsize=32)
def _zoomed_taps(side: int, zoom: float) -> Taps:
    """Along one axis: the four pixels that each output pixel is made of, borders mirrored, and their weights."""
    size = round(side * zoom)
    places = (np.arange(side) + (size - side) // 2) * ((side - 1) / (size - 1))
    first = np.floor(places)
    mirrored = [np.abs(first.astype(np.intp) + step) for step in (-1, 0, 1, 2)]
    taps = [np.where(each >= side, 2 * (side - 1) - each, each) for each in mirrored]
    return taps, _spline_weights(places - first)


@each
def pinch_and_twirl(image: Image, draws: Draws, *, magnitude: float) -> Image:
    """Pinch and twirl square blocks of the image, one after the other, each to a random side.

    As published, five blocks fit into a side of 224 pixels and three into any other; the rest of a side stays as it is.
    """
    height, width = image.shape[:2]
    short = min(height, width)
    block = short // (BLOCKS_OF_224 if short == 224 else BLOCKS)
    across, down = width // block, height // block
    turns = signs(draws, across * down)
    maps = {
        sign: _twirl(block, angle=sign * magnitude * math.pi / 20, amount=0.04 * magnitude + 0.1) for sign in (1, -1)
    }
    running = image.astype(np.float32)
    for number, sign in enumerate(turns):
        column, row = (part * block for part in divmod(number, down))
        window = running[row : row + block + 1, column : column + block + 1].astype(np.float64)
        rows, columns = maps[sign]
        twirled = bilinear(window, rows, columns).reshape(block, block, 3)
        running[row : row + block, column : column + block] = twirled
    return np.clip(running, 0, 255).astype(np.uint8)


@lru_cache(maxsize=64)
def _twirl(block: int, *, angle: float, amount: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where each pixel of a block looks, from the block's corner."""
    radius = block / 2
    y, x = (plane.ravel() for plane in np.mgrid[:block, :block].astype(np.float64) - radius)
    distance = np.sqrt(y * y + x * x)
    inside = (distance <= radius) & (np.round(distance, 3) != 0)
    share = np.where(inside, distance / radius, 0.5)
    pinch, turn = np.sin(np.pi * share / 2) ** -amount, angle * (1 - share) ** 2
    sine, cosine = np.sin(turn), np.cos(turn)
    rows = np.where(inside, pinch * (y * cosine - x * sine), y)
    columns = np.where(inside, pinch * (y * sine + x * cosine), x)
    return radius + rows, radius + columns


@each
def ripple(image: Image, draws: Draws, *, magnitude: float) -> Image:
    """Compress and stretch rows and columns in waves: a row is moved by a sine of its own place, as published."""
    unit = length_unit(image)
    lengths = [unit * float(draws.uniform(0.1, 0.3)) for _ in range(2)]
    phases = [float(draws.uniform(0, 2 * np.pi)) for _ in range(2)]
    rows, columns = (
        np.arange(side) + 0.0025 * magnitude * unit * np.sin(2 * np.pi * np.arange(side) / length + phase)
        for side, length, phase in zip(image.shape, lengths, phases, strict=False)
    )
    across = _between(image.swapaxes(0, 1), columns).swapaxes(0, 1)
    return np.clip(_between(across, rows), 0, 255).astype(np.uint8)


def _between(values: NDArray[np.float64] | Image, places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Linear interpolation along the first axis; all is black outside."""
    framed = np.zeros((len(values) + 2, *values.shape[1:]))
    framed[1:-1] = values
    lower = np.floor(places)
    weight = (places - lower)[:, None, None]
    first, second = (_framed_index(lower + step, len(values)) for step in (0, 1))
    return framed[first] * (1 - places + lower)[:, None, None] + framed[second] * weight
