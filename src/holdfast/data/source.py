"""Data sources: indexed images with a class and a stable id.

The order of class names decides the labels: integers by value, other names as text.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from PIL import Image

from holdfast.data.imagenet_classes import are_imagenet, are_wnids
from holdfast.errors import HoldfastError


class UnreadableImage(HoldfastError):
    """An image that cannot be decoded, with its ``id``."""

    def __init__(self, id: str, reason: str) -> None:
        super().__init__(f"image {id!r} cannot be read ({reason})")
        self.id = id


class Source(Protocol):
    """Protocol of an indexed data set.

    ``targets[i]`` is the class of image ``i`` as an index into ``classes``; ``id(i)`` identifies the image
    independently of its index, so that random draws per image (augmentation, corruption) survive subsets and shuffling.
    """

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names, in the order of the targets."""
        ...

    @property
    def targets(self) -> np.ndarray:
        """The class of every image, int64."""
        ...

    def __len__(self) -> int: ...

    def id(self, index: int) -> str:
        """The stable id of one image."""
        ...

    def image(self, index: int) -> Image.Image:
        """One image, RGB; raises `UnreadableImage`."""
        ...


@dataclass(frozen=True)
class ArraySource:
    """Images in memory, uint8 (N, H, W, 3)."""

    name: str
    images: np.ndarray
    targets: np.ndarray
    classes: tuple[str, ...]
    numbers: np.ndarray  # index of every image in the complete data set

    def __len__(self) -> int:
        return len(self.targets)

    def id(self, index: int) -> str:
        """The id ``name/number``, such as ``digits/000123``."""
        return f"{self.name}/{self.numbers[index]:06d}"

    def image(self, index: int) -> Image.Image:
        """One image as a PIL image."""
        return Image.fromarray(self.images[index])


def check_not_empty(source: Source, *, spec: str) -> None:
    """Refuse a source without images."""
    if len(source) == 0:
        raise HoldfastError(f"data {spec!r} must hold at least one image, got none")


def check_known_classes(known: tuple[str, ...] | None, source: Source, *, data: str) -> None:
    """Refuse data with as many classes as the model but other names; plain ranks fit any names."""
    named = [names for names in (known, source.classes) if names and not are_ranks(names)]
    if known and are_wnids(source.classes) and are_imagenet(known):  # names of ImageNet's classes for its wnids
        return
    if len(named) < 2 or len(named[0]) != len(named[1]) or named[0] == named[1]:
        return
    first = next(number for number, (ours, theirs) in enumerate(zip(*named, strict=True)) if ours != theirs)
    raise HoldfastError(
        f"the model's classes must be those of {data!r}, but number {first} is {named[0][first]!r} for the model and "
        f"{named[1][first]!r} in the data; --classes-differ evaluates nevertheless"
    )


def check_same_classes(first: Source, second: Source, *, names: tuple[str, str] = ("train", "val")) -> None:
    """Refuse two sources of different classes; plain ranks of the same number fit any names."""
    ours, theirs = first.classes, second.classes
    if ours == theirs or (len(ours) == len(theirs) and (are_ranks(ours) or are_ranks(theirs))):
        return
    missing = [name for name in ours if name not in theirs]
    extra = [name for name in theirs if name not in ours]
    differences = [
        f"{names[1]} {what} {', '.join(map(repr, found[:5]))}{' …' if len(found) > 5 else ''}"
        for what, found in (("lacks", missing), ("adds", extra))
        if found
    ]
    numbers = f"; numbered folders must be 0 to {len(ours) - 1}" if are_integers(theirs) else ""
    raise HoldfastError(
        f"{names[0]} and {names[1]} must have the same classes in the same order, got {len(ours)} and "
        f"{len(theirs)}: {'; '.join(differences) or 'the order differs'}{numbers}"
    )


INTEGER = re.compile(r"-?[0-9]+")


def in_label_order(names: Iterable[str]) -> tuple[str, ...]:
    """Sort class folders by label: by value if all names are integers, else alphabetically."""
    found = list(names)
    # torchvision sorts as text, which puts "10" before "2" and silently permutes the labels of numbered folders
    if not are_integers(found):
        return tuple(sorted(found))
    return tuple(sorted(found, key=lambda name: (int(name), name)))


def are_integers(names: Sequence[str]) -> bool:
    """Whether all names are whole numbers."""
    return bool(names) and all(INTEGER.fullmatch(name) for name in names)


def are_ranks(names: Sequence[str]) -> bool:
    """Whether names are 0, 1, 2 … in this order, also written 00, 01, 02 …: such names carry nothing but the rank."""
    return are_integers(names) and [int(name) for name in names] == list(range(len(names)))


def places_by_name(names: Sequence[str], known: Sequence[str]) -> list[int] | None:
    """Index of every name in a model's class names; None if one is missing or ambiguous."""
    ours, places = _keys(names), {name: place for place, name in enumerate(_keys(known))}
    if len(places) < len(known) or len({*ours}) < len(ours) or not {*ours} <= places.keys():
        return None
    return [places[name] for name in ours]


def _keys(names: Sequence[str]) -> list[str]:
    """Normalise names for comparison: 07 equals 7."""
    return [str(int(name)) for name in names] if are_integers(names) else list(names)
