"""Waves and noise of ImageNet-C-bar and CIFAR-10-C-bar: six kinds that draw a field over the whole image.

Mintun, Kirillov and Xie, "On Interaction Between Augmentations and Corruptions in Natural Corruption Robustness",
NeurIPS 2021. All parameters are linear in the published magnitude. The originals take square images; here an extent is
the side of its axis and a length is in units of √(height · width), which is the side of a square image.
"""

import math
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.corruptions.c_bar_draws import inner_draws, permuted
from holdfast.corruptions.filters import Image, each
from holdfast.corruptions.rng import Draws

Plane = NDArray[np.float64]  # H W

OCTAVES = (1, 2, 4, 8, 16)
LATTICE = 256  # gradients of Perlin noise, after which they repeat


@each
def single_frequency_greyscale(image: Image, draws: Draws, *, magnitude: float) -> Image:
    """Add one grey sine wave of random frequency, direction and phase."""
    larger = float(draws.uniform(-np.pi, np.pi))
    smaller = float(draws.uniform(-abs(larger), abs(larger)))
    across, down = permuted(draws, (larger, smaller))
    phase = float(draws.uniform(0, 2 * np.pi))
    height, width = image.shape[:2]
    x, y = across * np.arange(width), down * np.arange(height) + phase
    wave = np.sin(y)[:, None] * np.cos(x) + np.cos(y)[:, None] * np.sin(x)  # sin(x + y)
    return _add_grey(image, 19.6 * magnitude * wave)


@each
def cocentric_sine_waves(image: Image, draws: Draws, *, magnitude: float) -> Image:
    """Add wavy rings around a random point: a sawtooth of the distance, not a sine, and spelled as published."""
    height, width = image.shape[:2]
    tenth = length_unit(image) / 10
    column, row, frequency, amplitude, ring = (
        float(draws.uniform(0, highest)) for highest in (width, height, 10, tenth, tenth)
    )
    x, y = np.arange(width) - column, np.arange(height)[:, None] - row
    distance = np.sqrt(x * x + y * y)
    distance += amplitude * np.sin(frequency * np.arctan2(x, y))
    rings = distance / ring
    rings -= np.floor(rings)
    rings -= 0.5
    return _add_grey(image, 12.8 * magnitude * rings)


@each
def plasma_noise(image: Image, draws: Draws, *, magnitude: float) -> Image:
    """Blend in a field of warped sines, another one in each channel; the image gets darker on average."""
    time = float(draws.uniform(0, 6 * np.pi))
    iterations = int(draws.integers(4, 7))
    sharpness = float(draws.uniform(0.5, 1))
    scale = length_unit(image) * float(draws.uniform(0.075, 0.2))
    intensity = 6.4 * magnitude
    fields = _plasma(image.shape[:2], time=time, iterations=iterations, sharpness=sharpness, scale=scale)
    darker = (1 - intensity / 255) * np.arange(256.0)
    return truncated_sum(cv2.LUT(image, darker), cv2.merge([intensity * field for field in fields]))


def _plasma(
    shape: tuple[int, ...], *, time: float, iterations: int, sharpness: float, scale: float
) -> tuple[Plane, Plane, Plane]:
    p, q = np.arange(shape[1])[None] / scale, np.arange(shape[0])[:, None] / scale
    frequency = speed = damping = 1.0
    for _ in range(iterations):
        shift = time / speed
        right, down = np.cos(q * frequency + shift) / damping, np.sin(p * frequency + shift) / damping
        p, q = p + (right - 0.3 * down), q + (down + 0.3 * right)
        frequency, speed, damping = frequency * 1.93, speed * 1.15, damping * (2.25 - sharpness)
    return np.sin(p - time), np.sin((p + q + math.sin(time)) / 2), np.sin(q + time)


@each
def perlin_noise(image: Image, draws: Draws, *, magnitude: float) -> Image:
    """Blend in the turbulence of Perlin noise, a light veil.

    As published, a gradient is a normalised pair of whole numbers that may be (0, 0): one image in about 1000 has black
    patches around it, where the original's 0/0 became black.
    """
    gradients, permutation = _perlin_tables(inner_draws(draws))
    unit = 1 / (32 * length_unit(image) / 224)  # seven cells per side, whatever the size
    rows, columns = (np.arange(side) * unit for side in image.shape[:2])
    turbulence = np.zeros(image.shape[:2])
    for octave in OCTAVES:
        turbulence += np.abs(_lattice_noise(octave * rows, octave * columns, gradients, permutation)) / octave
    share = 0.05 * magnitude
    veil = 255 * share * np.minimum(0.5 + 0.5 * turbulence, 1)
    if np.isnan(gradients).any():
        np.copyto(veil, -255, where=np.isnan(veil))
    rest = np.float32(1 - share) * np.arange(256, dtype=np.float32)  # the original rounds this product
    return truncated_sum(cv2.LUT(image, rest).astype(np.float64), cv2.merge([veil] * 3))


def _perlin_tables(draws: Draws) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Unit gradients, (0, 0) as NaN, and a random permutation of their indices."""
    words: NDArray[Any]
    if draws.literal:  # 258 pairs of the original are never used, but drawn
        pairs, words = draws.integers(0, 2**31, (514, 2))[:LATTICE], draws.integers(0, 2**31, (LATTICE,))
    else:
        pairs, words = draws.words(2 * LATTICE).reshape(LATTICE, 2), draws.words(LATTICE)
    whole = (pairs.astype(np.int64) % 512 - 256) / 256
    with np.errstate(invalid="ignore"):
        gradients = whole / np.sqrt((whole**2).sum(axis=1, keepdims=True))
    permutation = np.arange(LATTICE)
    for last, other in zip(range(LATTICE - 1, -1, -1), (words.astype(np.int64) % LATTICE).tolist(), strict=True):
        permutation[[last, other]] = permutation[[other, last]]
    return gradients, permutation


def _lattice_noise(
    rows: NDArray[Any],
    columns: NDArray[Any],
    gradients: NDArray[np.float64],
    permutation: NDArray[np.intp],
) -> Plane:
    """Perlin's noise at every (row, column): gradients at whole places, blended by their smoothed distance.

    Rows and columns are independent, so each of the four corners is a small table, repeated over the pixels of a cell.
    """
    y, r, blend_r = _cells(rows)
    x, s, blend_s = _cells(columns)
    i, j = ((np.arange(int(cells[-1]) + 2) + 4096) % LATTICE for cells in (y, x))
    chosen = permutation[(permutation[i][:, None] + j) % LATTICE]
    tables = [component.take(chosen) for component in gradients.T]

    def corner(lower: int, right: int) -> Plane:
        gradient_down, gradient_across = (table.take(x + right, axis=1).take(y + lower, axis=0) for table in tables)
        gradient_down *= (r - lower)[:, None]
        gradient_across *= s - right
        gradient_down += gradient_across
        return gradient_down

    left = _blend(corner(0, 0), corner(1, 0), blend_r[:, None])
    right = _blend(corner(0, 1), corner(1, 1), blend_r[:, None])
    return 1.5 * _blend(left, right, blend_s)


def _cells(places: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
    """Along an axis: each pixel's cell of the lattice, its place in it, and how much the next lattice point counts."""
    shifted = places + 4096  # as published; it rounds
    offsets = shifted % 1
    return np.floor(shifted).astype(np.intp) - 4096, offsets, offsets * offsets * (3 - 2 * offsets)


def _blend(first: Plane, second: Plane, weight: NDArray[np.float64]) -> Plane:
    second -= first
    second *= weight
    second += first
    return second


@each
def brownish_noise(image: Image, draws: Draws, *, magnitude: float) -> Image:
    """Add noise of low frequencies to each channel; its mean is left in, so that the image gets a colour cast."""
    source, intensity = inner_draws(draws), 6.4 * magnitude
    noise = [np.floor(intensity * _spectral_noise(image.shape[:2], source, brown=True)) for _ in range(3)]
    return cv2.add(image, cv2.merge([field.astype(np.int16) for field in noise]), dtype=cv2.CV_8U)


@each
def blue_noise_sample(image: Image, draws: Draws, *, magnitude: float) -> Image:
    """Turn pixels black where noise of high frequencies is low, evenly spread over the image."""
    threshold = 0.3 * magnitude - 2.5
    stays = _spectral_noise(image.shape[:2], inner_draws(draws), brown=False) > threshold
    return cv2.bitwise_and(image, cv2.merge([stays.astype(np.uint8) * np.uint8(255)] * 3))


def _spectral_noise(shape: tuple[int, ...], draws: Draws, *, brown: bool) -> Plane:
    """Noise with a given amplitude and random phase at every frequency, divided by its standard deviation.

    The phases are mirrored, φ(y, x) = φ(−1 − y, −1 − x), not antisymmetric, and the real part is taken, as published.
    The real part of an inverse transform is that of the spectrum's Hermitian part, of which half the columns suffice.
    """
    height, width = shape
    spectrum = _random_phases(height, width, draws)
    spectrum *= _amplitudes(height, width, brown)
    spectrum = np.roll(spectrum, (height // 2, width // 2), (0, 1))
    columns = np.arange(width // 2 + 1)
    half = spectrum[:, columns] + spectrum[np.ix_(-np.arange(height), -columns)].conj()
    noise = np.fft.irfft2(half, shape)
    noise /= noise.std()
    return noise


def _random_phases(height: int, width: int, draws: Draws) -> NDArray[np.complex128]:
    """e^(iφ) of a left half, for odd widths a middle column that mirrors itself, and the left half turned by 180°."""
    left = _unit_complex(draws.uniform(0, 2 * np.pi, (height, width // 2)))
    parts = [left, left[::-1, ::-1]]
    if width % 2:
        column = _unit_complex(draws.uniform(0, 2 * np.pi, (height // 2, 1)))
        parts.insert(1, np.concatenate([column, np.ones((height % 2, 1)), column[::-1]]))
    return np.concatenate(parts, axis=1)


def _unit_complex(phases: NDArray[Any]) -> NDArray[np.complex128]:
    values = np.empty(phases.shape, np.complex128)
    values.real, values.imag = np.cos(phases), np.sin(phases)
    return values


@lru_cache(maxsize=2)  # large images have large fields
def _amplitudes(height: int, width: int, brown: bool) -> Plane:
    """By distance d from the zero frequency, in cycles per √(height · width): d for blue, 1 / (d² + 1) for brown."""
    side = math.sqrt(height * width)
    y, x = ((np.arange(count) - count / 2) * (side / count) for count in (height, width))
    squared = x * x + (y * y)[:, None]
    return 1 / (squared + 1) if brown else np.sqrt(squared)


def length_unit(image: Image) -> float:
    """What a length is a multiple of: the side of a square image, √(height · width) of others."""
    return math.sqrt(image.shape[0] * image.shape[1])


def truncated_sum(image: NDArray[np.float64], light: NDArray[np.float64]) -> Image:
    """The sum of both, clipped and truncated, as published."""
    image += light
    return np.clip(image, 0, 255, out=image).astype(np.uint8)


def _add_grey(image: Image, light: Plane) -> Image:
    """Add the same light to all channels, clip and truncate: of a whole number plus light, that is its floor."""
    levels = np.floor(light, out=light).astype(np.int16)
    return cv2.add(image, cv2.merge([levels] * 3), dtype=cv2.CV_8U)
