"""What a data source is: numbered images with a class, and an id that never changes."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from PIL import Image

from holdfast.errors import HoldfastError


class UnreadableImage(HoldfastError):
    """An image that cannot be decoded; ``id`` says which."""

    def __init__(self, id: str, reason: str) -> None:
        super().__init__(f"image {id!r} cannot be read ({reason})")
        self.id = id


class Source(Protocol):
    """Images of one data set, by number.

    ``targets[i]`` is the class of image ``i`` as an index into ``classes``; ``id(i)`` names the image independently of
    its number, so that whatever is drawn per image (augmentation, corruption) survives subsets and reordering.
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
        """The stable name of one image."""
        ...

    def image(self, index: int) -> Image.Image:
        """One image, RGB; raises :class:`UnreadableImage`."""
        ...


@dataclass(frozen=True)
class ArraySource:
    """Images that are already in memory, uint8 (N, H, W, 3)."""

    name: str
    images: np.ndarray
    targets: np.ndarray
    classes: tuple[str, ...]
    numbers: np.ndarray  # every image's number in the data set it comes from

    def __len__(self) -> int:
        return len(self.targets)

    def id(self, index: int) -> str:
        """``name/number``."""
        return f"{self.name}/{self.numbers[index]:06d}"

    def image(self, index: int) -> Image.Image:
        """One image."""
        return Image.fromarray(self.images[index])


def check_not_empty(source: Source, *, spec: str) -> None:
    """Refuse a source without images."""
    if len(source) == 0:
        raise HoldfastError(f"data {spec!r} must hold at least one image, got none")


def check_known_classes(known: tuple[str, ...] | None, source: Source, *, data: str) -> None:
    """Refuse data with as many classes as a model knows but other names; numbers name nothing and fit everything."""
    named = [names for names in (known, source.classes) if names and names != tuple(map(str, range(len(names))))]
    if len(named) < 2 or len(named[0]) != len(named[1]) or named[0] == named[1]:
        return
    first = next(number for number, (ours, theirs) in enumerate(zip(*named, strict=True)) if ours != theirs)
    raise HoldfastError(
        f"the model's classes must be those of {data!r}, but number {first} is {named[0][first]!r} for the model and "
        f"{named[1][first]!r} in the data; --classes-differ measures all the same"
    )


def check_same_classes(train: Source, val: Source) -> None:
    """Refuse a validation source whose classes are not those of the training source."""
    if train.classes == val.classes:
        return
    missing = [name for name in train.classes if name not in val.classes]
    extra = [name for name in val.classes if name not in train.classes]
    differences = [
        f"{what} {', '.join(map(repr, names[:5]))}{' …' if len(names) > 5 else ''}"
        for what, names in (("val lacks", missing), ("val adds", extra))
        if names
    ]
    raise HoldfastError(
        f"train and val must have the same classes in the same order, got {len(train.classes)} and "
        f"{len(val.classes)}: {'; '.join(differences) or 'the order differs'}"
    )
