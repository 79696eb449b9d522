"""Concatenated sources and stratified subsets."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from PIL import Image

from holdfast.data.source import Source, are_ranks, check_same_classes
from holdfast.errors import HoldfastError


class Joined:
    """Several sources of the same classes, one after the other (AFAT's CIFAR recipes: clean + two augmented copies).

    Folders of one part may be numbered, 0…9 or 00…99, while those of another have class names.
    ``names`` are the parts' names in error messages.
    """

    def __init__(self, parts: Sequence[Source], *, names: Sequence[str] = ()) -> None:
        labels = [repr(name) for name in names] or [f"part {number}" for number in range(len(parts))]
        named = next((number for number, part in enumerate(parts) if not are_ranks(part.classes)), 0)
        for number, part in enumerate(parts):
            check_same_classes(parts[named], part, names=(labels[named], labels[number]))
        self.parts = tuple(parts)
        self.classes = parts[named].classes
        self._ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getattr__(self, name: str) -> Any:
        return _of_parts(self, name, "parts")

    @cached_property
    def targets(self) -> np.ndarray:
        """The class of every image, of sources that have one."""
        return np.concatenate([part.targets for part in self.parts])

    def target(self, index: int) -> Any:
        """The target of one image, of sources that read them one by one."""
        part, inner = self._locate(index)
        source: Any = self.parts[part]
        return source.target(inner)

    def id(self, index: int) -> str:
        """The part's number and the id in it: copies of an image in two parts are different images."""
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
    """Some images of a source, with unchanged ids."""

    def __init__(self, source: Source, indices: np.ndarray) -> None:
        self.source, self.indices = source, indices
        self.classes = source.classes

    def __len__(self) -> int:
        return len(self.indices)

    def __getattr__(self, name: str) -> Any:
        return _of_parts(self, name, "source")

    @cached_property
    def targets(self) -> np.ndarray:
        """The class of every image, of sources that have one."""
        return self.source.targets[self.indices]

    def target(self, index: int) -> Any:
        """The target of one image, of sources that read them one by one."""
        source: Any = self.source
        return source.target(int(self.indices[index]))

    def id(self, index: int) -> str:
        """The id in the complete source."""
        return self.source.id(int(self.indices[index]))

    def image(self, index: int) -> Image.Image:
        """One image of the subset."""
        return self.source.image(int(self.indices[index]))


def turned_images(source: Source) -> int:
    """Number of decoded images with a non-trivial EXIF orientation, over all parts of a source."""
    if isinstance(source, Joined):
        return sum(map(turned_images, source.parts))
    return turned_images(source.source) if isinstance(source, Subset) else getattr(source, "turned_count", 0)


def stratified_subset(source: Source, size: float, *, seed: int) -> Subset:
    """A seeded random subset, stratified by class: a count (≥ 1) or a fraction (< 1) of the images."""
    total = len(source)
    count = round(size * total) if 0 < size < 1 else int(size)
    if size <= 0 or count < 1 or count > total or (size > 1 and size != count):
        raise HoldfastError(f"a subset must be a fraction in (0, 1) or a count of 1 to {total} images, got {size}")
    targets = source.targets if hasattr(source, "targets") else np.zeros(total, np.int64)  # no classes: not stratified
    shares = _shares(np.bincount(targets, minlength=len(source.classes)), count)
    chosen = [_draw(np.flatnonzero(targets == label), n, [seed, label]) for label, n in enumerate(shares)]
    return Subset(source, np.sort(np.concatenate(chosen)))


def _shares(counts: np.ndarray, wanted: int) -> np.ndarray:
    """Images per class by the largest-remainder method: sums to ``wanted`` and never exceeds a class."""
    exact = counts * (wanted / counts.sum())
    shares = np.floor(exact).astype(np.int64)
    largest_remainders = np.argsort(-(exact - shares), kind="stable")[: wanted - int(shares.sum())]
    shares[largest_remainders] += 1
    return shares


def _of_parts(whole: Any, name: str, inner: str) -> Any:
    """Look up attributes that a combination inherits from its parts: task and preprocessing."""
    if name in ("task", "box", "numbers", "category_ids", "prepared") and inner in whole.__dict__:
        parts = whole.__dict__[inner]
        return getattr(parts[0] if isinstance(parts, tuple) else parts, name)
    raise AttributeError(f"{type(whole).__name__!r} object has no attribute {name!r}")


def _draw(members: np.ndarray, count: int, key: list[int]) -> np.ndarray:
    return np.random.default_rng(key).permutation(members)[:count]
