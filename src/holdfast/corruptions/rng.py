"""Random draws of corruptions: streams keyed by image, or a literal replay of NumPy's legacy stream.

Every random kind takes its source of draws as an argument. A keyed source depends only on (seed, image id, kind,
severity), so results never depend on order, batch size, workers or processes.
"""

import math
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from holdfast import rng

Shape = tuple[int, ...]


@runtime_checkable
class Draws(Protocol):
    """A source of random draws for corruptions.

    Kinds draw from a ``literal`` source exactly as the reference implementations do, number by number; from any other
    source they may draw fewer numbers, or through tables, as long as the distribution of the result is the same.
    """

    literal: bool

    def normal(self, shape: Shape) -> NDArray[Any]:
        """Standard normal values of this shape."""

    def uniform(self, low: float, high: float, shape: Shape = ()) -> NDArray[Any]:
        """Uniform values in [low, high)."""

    def integers(self, low: int, high: int, shape: Shape = ()) -> NDArray[Any]:
        """Uniform integers in [low, high)."""

    def poisson(self, rate: NDArray[Any]) -> NDArray[Any]:
        """Poisson counts for an array of rates; for literal sources only."""

    def words(self, count: int) -> NDArray[np.uint16]:
        """Independent 16-bit words; not for literal sources."""

    def fractions(self, count: int) -> NDArray[np.float64]:
        """Uniform values in [0, 1) with 53 bits; not for literal sources."""


class StreamDraws:
    """Draws from a NumPy generator, right in distribution. Arrays of normal and uniform values have 16 bits each."""

    literal = False

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator

    def words(self, count: int) -> NDArray[np.uint16]:
        """Independent 16-bit words, four from each 64-bit word of the generator."""
        return self._raw(-(-count // 4)).view(np.uint16)[:count]

    def fractions(self, count: int) -> NDArray[np.float64]:
        """Uniform values in [0, 1) with 53 bits."""
        return self.generator.random(count)

    def normal(self, shape: Shape) -> NDArray[Any]:
        """Standard normal float32 values: the midpoints of 65536 equally likely bins, which end at ±4.3 σ."""
        return _normal_bins().take(self.words(math.prod(shape)), mode="clip").reshape(shape)

    def uniform(self, low: float, high: float, shape: Shape = ()) -> NDArray[Any]:
        """Uniform values: 53 bits for a scalar, float32 midpoints of 65536 bins for an array."""
        if not shape:
            return np.asarray(self.generator.uniform(low, high))
        step = (high - low) / 65536
        field = self.words(math.prod(shape)).reshape(shape).astype(np.float32)
        field *= np.float32(step)
        field += np.float32(low + step / 2)
        return field

    def integers(self, low: int, high: int, shape: Shape = ()) -> NDArray[Any]:
        """Uniform integers in [low, high); for an array at most 256 different ones, as uint8 if low is 0."""
        span, count = high - low, math.prod(shape)
        if not shape:
            return np.asarray(self.generator.integers(low, high))
        if span & (span - 1):
            field = self.generator.integers(0, span, shape, dtype=np.uint8)
        else:
            field = (self._raw(-(-count // 8)).view(np.uint8)[:count] & np.uint8(span - 1)).reshape(shape)
        return field + low if low else field

    def poisson(self, rate: NDArray[Any]) -> NDArray[Any]:
        """Poisson counts for an array of rates."""
        return self.generator.poisson(rate)

    def _raw(self, count: int) -> NDArray[np.uint64]:
        if isinstance(self.generator.bit_generator, np.random.MT19937):  # the only generator with 32-bit raw words
            return self.generator.integers(0, 2**64, count, dtype=np.uint64).astype("<u8", copy=False)
        return self.generator.bit_generator.random_raw(count).astype("<u8", copy=False)


class LegacyDraws:
    """A literal replay of NumPy's legacy stream, which the published generators use."""

    literal = True

    def __init__(self, seed: int) -> None:
        self.state = np.random.RandomState(seed)

    def normal(self, shape: Shape) -> NDArray[Any]:
        """Standard normal float64 values of this shape."""
        return self.state.standard_normal(shape)

    def uniform(self, low: float, high: float, shape: Shape = ()) -> NDArray[Any]:
        """Uniform float64 in [low, high)."""
        return np.asarray(self.state.uniform(low, high, shape or None))

    def integers(self, low: int, high: int, shape: Shape = ()) -> NDArray[Any]:
        """Uniform integers in [low, high)."""
        return np.asarray(self.state.randint(low, high, shape or None))

    def poisson(self, rate: NDArray[Any]) -> NDArray[Any]:
        """Poisson counts for an array of rates."""
        return self.state.poisson(rate)

    def words(self, count: int) -> NDArray[np.uint16]:
        """Not available: kinds draw from a literal source as the reference does."""
        raise NotImplementedError("a literal source has no words")

    def fractions(self, count: int) -> NDArray[np.float64]:
        """Not available: kinds draw from a literal source as the reference does."""
        raise NotImplementedError("a literal source has no fractions")


def keyed(seed: int, image_id: str, kind: str, severity: int) -> StreamDraws:
    """Draws that depend only on these four values, see `holdfast.rng.stream`."""
    return StreamDraws(rng.stream(seed, image_id, kind, severity))


@lru_cache(maxsize=1)
def _normal_bins() -> NDArray[np.float32]:
    bins = ndtri((np.arange(65536) + 0.5) / 65536).astype(np.float32)
    bins.flags.writeable = False
    return bins
