"""Noise corruptions: gaussian, shot, impulse and speckle, each independent per pixel and channel.

On bytes ``trunc(255·(u + n))`` equals ``X + floor(255·n)``, so each noise is a discrete distribution that a
`LookupTable` samples exactly.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, pdtr

from holdfast.corruptions.filters import STRIP_VALUES, Images, stack_arrays
from holdfast.corruptions.rng import Draws

UNDECIDED = np.int16(-(2**15))


@dataclass(frozen=True)
class LookupTable:
    """Cumulative probabilities of the outcomes ``first, first + 1, …``, one row per condition, and a guide table."""

    cumulative: NDArray[np.float64]  # rows × outcomes
    first: int
    guide_bits: int
    guide: NDArray[np.int16]  # rows · 2^guide_bits, outcome or UNDECIDED
    keys: NDArray[np.float64]  # row + cumulative in one sorted array, so that one search serves all rows

    def sample(
        self,
        words: NDArray[np.uint16],
        rows: NDArray[np.uint8] | None,
        refine: Callable[[NDArray[np.intp]], NDArray[np.float64]],
    ) -> NDArray[np.int16]:
        """One outcome per 16-bit word, all arrays flat.

        ``rows`` is the row of the table for each value (None: there is only one); ``refine`` returns uniform values in
        [0, 1) for the sorted positions that 16 bits leave undecided.
        """
        index = (words >> np.uint16(16 - self.guide_bits)).astype(np.intp)
        if rows is not None:
            index += rows.astype(np.intp) << self.guide_bits
        outcome = self.guide.take(index, mode="clip")
        undecided = np.flatnonzero(outcome == UNDECIDED)
        if undecided.size:
            exact = (words[undecided] + refine(undecided)) / 65536
            outcome[undecided] = self._invert(exact, 0 if rows is None else rows[undecided].astype(np.intp))
        return outcome

    def _invert(self, uniform: NDArray[np.float64], rows: NDArray[np.intp] | int) -> NDArray[Any]:
        outcomes = self.cumulative.shape[1]
        position = np.searchsorted(self.keys, uniform + rows, side="right") - rows * outcomes
        return np.minimum(position, outcomes - 1) + self.first


def lookup_table(cumulative: NDArray[np.float64], *, first: int, guide_bits: int) -> LookupTable:
    """Build the guide table: a bin of draws that lies within one outcome maps to it directly."""
    size = 1 << guide_bits
    edges = np.arange(size + 1) / size
    guide = np.empty((len(cumulative), size), np.int16)
    for row, steps in zip(guide, cumulative, strict=True):
        place = np.searchsorted(steps, edges, side="right")
        surely = np.searchsorted(steps, edges[1:], side="left") == place[:-1]
        row[:] = np.where(surely, np.minimum(place[:-1], len(steps) - 1) + first, UNDECIDED)
    keys = (cumulative + np.arange(len(cumulative))[:, None]).ravel()
    return LookupTable(cumulative, first, guide_bits, guide.ravel(), keys)


_SHIFTS = np.arange(-255, 256)
_LEVELS = np.arange(256)


def gaussian_noise(images: Images, draws: Sequence[Draws], *, sigma: float) -> Images:
    """Gaussian noise: clip(u + σ·N(0,1)).

    ImageNet-C, Hendrycks & Dietterich 2019; the cast truncates.
    """
    if draws[0].literal:
        return _cast([unit + sigma * source.normal(unit.shape) for unit, source in _units(images, draws)])
    return _add_shifts(images, draws, gaussian_law(sigma))


def impulse_noise(images: Images, draws: Sequence[Draws], *, amount: float) -> Images:
    """Salt-and-pepper noise: a fraction of all values becomes 0 or 255, half each, independently per channel.

    ImageNet-C, after scikit-image's salt and pepper, which draws per array element: specks are coloured.
    """
    if draws[0].literal:
        return np.stack([_salt_and_pepper(image, source, amount) for image, source in zip(images, draws, strict=True)])
    result = images.copy()
    for part, target in _parts(images, result):
        words = stack_arrays([source.words(part.shape[1]) for source in draws])
        # salt from the low end of the words and pepper from the high end: one word decides both
        for words_from_end, level in ((words, 255), (~words, 0)):
            np.putmask(target, below(amount / 2, words_from_end, draws), np.uint8(level))
    return result


def shot_noise(images: Images, draws: Sequence[Draws], *, photons: float) -> Images:
    """Shot noise: Poisson(u·c)/c, for c photons at full brightness.

    ImageNet-C; there are only 256 rates, so a table of 256 distributions is exact.
    """
    if draws[0].literal:
        return _cast([source.poisson(unit * photons) / float(photons) for unit, source in _units(images, draws)])
    return _by_level(images, draws, shot_law(photons))


def speckle_noise(images: Images, draws: Sequence[Draws], *, sigma: float) -> Images:
    """Speckle noise, proportional to brightness: clip(u + u·σ·N(0,1)).

    ImageNet-C, extra kind.
    """
    if draws[0].literal:
        return _cast([unit + unit * (sigma * source.normal(unit.shape)) for unit, source in _units(images, draws)])
    return _by_level(images, draws, speckle_law(sigma))


@lru_cache(maxsize=16)
def gaussian_law(sigma: float) -> LookupTable:
    """P(floor(255·σ·n) ≤ k); values beyond ±255 are merged, since the sum saturates there."""
    steps = ndtr((_SHIFTS + 1) / (255 * sigma))
    steps[-1] = 1.0
    return lookup_table(steps[None], first=-255, guide_bits=16)


@lru_cache(maxsize=10)
def shot_law(photons: float) -> LookupTable:
    """P(result ≤ v | level): the Poisson distribution at the largest count whose truncated level is v."""
    counts = np.arange(int(photons) + 2)
    results = (np.clip(counts / float(photons), 0, 1) * 255).astype(np.uint8)
    largest = np.searchsorted(results, _LEVELS, side="right") - 1.0
    steps = pdtr(largest[None], (_LEVELS / 255.0 * photons)[:, None])
    steps[:, -1] = 1.0
    return lookup_table(steps, first=0, guide_bits=12)


@lru_cache(maxsize=10)
def speckle_law(sigma: float) -> LookupTable:
    """P(result ≤ v | level x) = Φ(((v+1)/x − 1)/σ); black stays black."""
    levels = np.maximum(_LEVELS, 1)[:, None]
    steps = ndtr(((_LEVELS + 1) / levels - 1) / sigma)
    steps[0], steps[:, -1] = 1.0, 1.0
    return lookup_table(steps, first=0, guide_bits=12)


def _add_shifts(images: Images, draws: Sequence[Draws], shifts: LookupTable) -> Images:
    result = np.empty_like(images)
    for part, target in _parts(images, result):
        words = stack_arrays([source.words(part.shape[1]) for source in draws]).ravel()
        shift = shifts.sample(words, None, _refiner(draws, part.shape[1]))
        cv2.add(part, shift.reshape(part.shape), target, dtype=cv2.CV_8U)
    return result


def _by_level(images: Images, draws: Sequence[Draws], levels: LookupTable) -> Images:
    result = np.empty_like(images)
    for part, target in _parts(images, result):
        words = stack_arrays([source.words(part.shape[1]) for source in draws]).ravel()
        target[:] = levels.sample(words, part.ravel(), _refiner(draws, part.shape[1])).reshape(part.shape)
    return result


def _parts(images: Images, result: Images) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
    """Images and result as N × values, in parts that fit into the cache; several small images are always one part."""
    flat, target = images.reshape(len(images), -1), result.reshape(len(images), -1)
    for start in range(0, flat.shape[1], STRIP_VALUES):
        columns = slice(start, start + STRIP_VALUES)
        yield flat[:, columns], target[:, columns]


def _refiner(draws: Sequence[Draws], size: int) -> Callable[[NDArray[np.intp]], NDArray[np.float64]]:
    def refine(places: NDArray[np.intp]) -> NDArray[np.float64]:
        ends = np.searchsorted(places, np.arange(len(draws) + 1) * size)
        return np.concatenate([source.fractions(count) for source, count in zip(draws, np.diff(ends), strict=True)])

    return refine


def below(share: float, words: NDArray[np.uint16], draws: Sequence[Draws]) -> NDArray[np.bool_]:
    """Bernoulli draws from 16-bit words; the one word value that the probability splits gets 53 further bits."""
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
