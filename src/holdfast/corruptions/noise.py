"""Noise: gaussian, shot, impulse and speckle, each independent per pixel and channel.

On bytes the sum ``trunc(255·(u + n))`` is ``X + floor(255·n)``, so each noise is a law of whole numbers (see `laws`).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, pdtr

from holdfast.corruptions.draws import Draws
from holdfast.corruptions.filters import STRIP_VALUES, Images, stacked
from holdfast.corruptions.laws import Law, law

_SHIFTS = np.arange(-255, 256)
_LEVELS = np.arange(256)


def gaussian_noise(images: Images, draws: Sequence[Draws], *, sigma: float) -> Images:
    """clip(u + σ·N(0,1)).

    ImageNet-C, Hendrycks & Dietterich 2019; the cast truncates.
    """
    if draws[0].literal:
        return _cast([unit + sigma * source.normal(unit.shape) for unit, source in _units(images, draws)])
    return _shifted(images, draws, gaussian_law(sigma))


def impulse_noise(images: Images, draws: Sequence[Draws], *, amount: float) -> Images:
    """A share of all values turns black or white, half each; channels on their own, so specks are coloured.

    ImageNet-C, after scikit-image's salt and pepper.
    """
    if draws[0].literal:
        return np.stack([_salt_and_pepper(image, source, amount) for image, source in zip(images, draws, strict=True)])
    result = images.copy()
    for part, target in _parts(images, result):
        words = stacked([source.words(part.shape[1]) for source in draws])
        for words_from_end, level in ((words, 255), (~words, 0)):
            np.putmask(target, _below(amount / 2, words_from_end, draws), np.uint8(level))
    return result


def shot_noise(images: Images, draws: Sequence[Draws], *, photons: float) -> Images:
    """Poisson(u·c)/c, the noise of c photons at full brightness.

    ImageNet-C; only 256 rates exist, so a table of 256 laws is exact.
    """
    if draws[0].literal:
        return _cast([source.poisson(unit * photons) / float(photons) for unit, source in _units(images, draws)])
    return _by_level(images, draws, shot_law(photons))


def speckle_noise(images: Images, draws: Sequence[Draws], *, sigma: float) -> Images:
    """clip(u + u·σ·N(0,1)): noise in proportion to brightness.

    ImageNet-C, extra kind.
    """
    if draws[0].literal:
        return _cast([unit + unit * (sigma * source.normal(unit.shape)) for unit, source in _units(images, draws)])
    return _by_level(images, draws, speckle_law(sigma))


@lru_cache(maxsize=16)
def gaussian_law(sigma: float) -> Law:
    """P(floor(255·σ·n) ≤ k): saturation merges what lies beyond ±255."""
    steps = ndtr((_SHIFTS + 1) / (255 * sigma))
    steps[-1] = 1.0
    return law(steps[None], first=-255, guide_bits=16)


@lru_cache(maxsize=10)
def shot_law(photons: float) -> Law:
    """P(result ≤ v | level): the largest count whose truncated level is v, looked up in the Poisson distribution."""
    counts = np.arange(int(photons) + 2)
    results = (np.clip(counts / float(photons), 0, 1) * 255).astype(np.uint8)
    largest = np.searchsorted(results, _LEVELS, side="right") - 1.0
    steps = pdtr(largest[None], (_LEVELS / 255.0 * photons)[:, None])
    steps[:, -1] = 1.0
    return law(steps, first=0, guide_bits=12)


@lru_cache(maxsize=10)
def speckle_law(sigma: float) -> Law:
    """P(result ≤ v | level x) = Φ(((v+1)/x − 1)/σ); black stays black."""
    levels = np.maximum(_LEVELS, 1)[:, None]
    steps = ndtr(((_LEVELS + 1) / levels - 1) / sigma)
    steps[0], steps[:, -1] = 1.0, 1.0
    return law(steps, first=0, guide_bits=12)


def _shifted(images: Images, draws: Sequence[Draws], shifts: Law) -> Images:
    result = np.empty_like(images)
    for part, target in _parts(images, result):
        words = stacked([source.words(part.shape[1]) for source in draws]).ravel()
        shift = shifts.sample(words, None, _refiner(draws, part.shape[1]))
        cv2.add(part, shift.reshape(part.shape), target, dtype=cv2.CV_8U)
    return result


def _by_level(images: Images, draws: Sequence[Draws], levels: Law) -> Images:
    result = np.empty_like(images)
    for part, target in _parts(images, result):
        words = stacked([source.words(part.shape[1]) for source in draws]).ravel()
        target[:] = levels.sample(words, part.ravel(), _refiner(draws, part.shape[1])).reshape(part.shape)
    return result


def _parts(images: Images, result: Images) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
    """Images and result as N × values, in parts that stay in cache; several images always are one part."""
    flat, target = images.reshape(len(images), -1), result.reshape(len(images), -1)
    for start in range(0, flat.shape[1], STRIP_VALUES):
        columns = slice(start, start + STRIP_VALUES)
        yield flat[:, columns], target[:, columns]


def _refiner(draws: Sequence[Draws], size: int) -> Callable[[NDArray[np.intp]], NDArray[np.float64]]:
    def refine(places: NDArray[np.intp]) -> NDArray[np.float64]:
        ends = np.searchsorted(places, np.arange(len(draws) + 1) * size)
        return np.concatenate([source.fractions(count) for source, count in zip(draws, np.diff(ends), strict=True)])

    return refine


def _below(share: float, words: NDArray[np.uint16], draws: Sequence[Draws]) -> NDArray[np.bool_]:
    """True for a share of all words; the one word value that the share splits is decided with 53 further bits."""
    limit, rest = divmod(share * 65536, 1)
    chosen = words < np.uint16(limit)
    undecided = np.flatnonzero(words == np.uint16(limit))
    if undecided.size:
        chosen.ravel()[undecided] = _refiner(draws, words.shape[1])(undecided) < rest
    return chosen


def _units(images: Images, draws: Sequence[Draws]) -> list[tuple[NDArray[np.float64], Draws]]:
    return [(image / 255.0, source) for image, source in zip(images, draws, strict=True)]


def _salt_and_pepper(image: NDArray[np.uint8], draws: Draws, amount: float) -> NDArray[np.uint8]:
    hit, white = draws.uniform(0, 1, image.shape) <= amount, draws.uniform(0, 1, image.shape) <= 0.5
    return np.where(hit, np.where(white, np.uint8(255), np.uint8(0)), image)


def _cast(units: list[NDArray[np.float64]]) -> Images:
    return (np.clip(np.stack(units), 0, 1) * 255).astype(np.uint8)
