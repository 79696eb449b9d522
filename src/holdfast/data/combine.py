"""Sources made of sources: concatenation, and subsets that keep the share of every class."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from holdfast.data.source import Source, check_same_classes
from holdfast.errors import HoldfastError


class Joined:
    """Several sources of the same classes, one after the other (AFAT's CIFAR recipes: clean + two augmented copies)."""

    def __init__(self, parts: Sequence[Source]) -> None:
        for part in parts[1:]:
            check_same_classes(parts[0], part)
        self.parts = tuple(parts)
        self.classes = parts[0].classes
        self.targets = np.concatenate([part.targets for part in parts])
        self._ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return len(self.targets)

    def id(self, index: int) -> str:
        """The part's number and its own id: copies of one image are different images."""
        part, inner = self._locate(index)
        return f"{part}:{self.parts[part].id(inner)}"

    def image(self, index: int) -> Image.Image:
        """One image of one part."""
        part, inner = self._locate(index)
        return self.parts[part].image(inner)

    def _locate(self, index: int) -> tuple[int, int]:
        part = int(np.searchsorted(self._ends, index, side="right"))
        return part, index - (int(self._ends[part - 1]) if part else 0)


class Subset:
    """Some images of a source, under their old ids."""

    def __init__(self, source: Source, indices: np.ndarray) -> None:
        self.source, self.indices = source, indices
        self.classes = source.classes
        self.targets = source.targets[indices]

    def __len__(self) -> int:
        return len(self.indices)

    def id(self, index: int) -> str:
        """The id in the whole source."""
        return self.source.id(int(self.indices[index]))

    def image(self, index: int) -> Image.Image:
        """One image."""
        return self.source.image(int(self.indices[index]))


def turned_images(source: Source) -> int:
    """How many of the images decoded so far ask to be rotated by EXIF, over all parts of a source."""
    if isinstance(source, Joined):
        return sum(map(turned_images, source.parts))
    return turned_images(source.source) if isinstance(source, Subset) else getattr(source, "turned", 0)


def stratified_subset(source: Source, size: float, *, seed: int) -> Subset:
    """A seeded random subset with every class in its share: a count (≥ 1), or a fraction (< 1)."""
    total = len(source)
    count = round(size * total) if 0 < size < 1 else int(size)
    if size <= 0 or count < 1 or count > total or (size > 1 and size != count):
        raise HoldfastError(f"a subset must be a fraction in (0, 1) or a count of 1 to {total} images, got {size}")
    shares = _shares(np.bincount(source.targets, minlength=len(source.classes)), count)
    chosen = [_draw(np.flatnonzero(source.targets == label), n, [seed, label]) for label, n in enumerate(shares)]
    return Subset(source, np.sort(np.concatenate(chosen)))


def _shares(counts: np.ndarray, wanted: int) -> np.ndarray:
    """How many of each class, by the largest remainder: adds up to ``wanted`` and never exceeds a class."""
    exact = counts * (wanted / counts.sum())
    shares = np.floor(exact).astype(np.int64)
    largest_remainders = np.argsort(-(exact - shares), kind="stable")[: wanted - int(shares.sum())]
    shares[largest_remainders] += 1
    return shares


def _draw(members: np.ndarray, count: int, key: list[int]) -> np.ndarray:
    return np.random.default_rng(key).permutation(members)[:count]
