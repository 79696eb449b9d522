"""Noise: gaussian, shot, impulse and speckle, each independent per pixel and channel.

On bytes the sum ``trunc(255·(u + n))`` is ``X + floor(255·n)``, so each noise is a law of whole numbers (see `laws`).
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
    keys: NDArray[np.float64]  # row + cumulative, one sorted list, so that one search serves all rows

    def sample(
        self,
        words: NDArray[np.uint16],
        rows: NDArray[np.uint8] | None,
        refine: Callable[[NDArray[np.intp]], NDArray[np.float64]],
    ) -> NDArray[np.int16]:
        """One outcome per 16-bit word, all arrays flat.

        ``rows`` says which row of the law each follows (None: there is but one); ``refine`` is asked for uniform values
        in [0, 1) for the sorted places that 16 bits leave undecided.
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
    """Build the guide table: a bin of draws that lies wholly within one outcome is answered by it."""
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
    """clip(u + σ·N(0,1)).

    ImageNet-C, Hendrycks & Dietterich 2019; the cast truncates.
    """
    if draws[0].literal:
        return _cast([unit + sigma * source.normal(unit.shape) for unit, source in _units(images, draws)])
    return _add_shifts(images, draws, gaussian_law(sigma))


def impulse_noise(images: Images, draws: Sequence[Draws], *, amount: float) -> Images:
    """A share of all values turns black or white, half each; channels on their own, so specks are coloured.

    ImageNet-C, after scikit-image's salt and pepper.
    """
    if draws[0].literal:
        return np.stack([_salt_and_pepper(image, source, amount) for image, source in zip(images, draws, strict=True)])
    result = images.copy()
    for part, target in _parts(images, result):
        words = stack_arrays([source.words(part.shape[1]) for source in draws])
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
def gaussian_law(sigma: float) -> LookupTable:
    """P(floor(255·σ·n) ≤ k): saturation merges what lies beyond ±255."""
    steps = ndtr((_SHIFTS + 1) / (255 * sigma))
    steps[-1] = 1.0
    return lookup_table(steps[None], first=-255, guide_bits=16)


@lru_cache(maxsize=10)
def shot_law(photons: float) -> LookupTable:
    """P(result ≤ v | level): the largest count whose truncated level is v, looked up in the Poisson distribution."""
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
