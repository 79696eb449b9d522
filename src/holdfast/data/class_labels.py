"""Which class of a model a class folder stands for: by its rank, by its index, or by its name.

===========  ===========================================================================================
rank         the folder's place in order: by value where all names are integers, else as text
index        the model has more classes than there are folders, and every name is one of its class numbers
name         the model stores the names of its classes (runs do), and every folder is called like one
===========  ===========================================================================================
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from holdfast.data.image_folder import FolderSource
from holdfast.data.source import Source, are_integers, are_ranks, places_by_name
from holdfast.data.subsets import Joined, Subset

RULES = {
    "rank": "each class folder's place in the order of its number",
    "index": "each class folder's name is the model's class number",
    "name": "class names that the model stores",
}


class Relabelled(Subset):
    """All images of a source, labelled by another list of classes; ``labels`` has the new label of every old one."""

    def __init__(self, source: Source, classes: tuple[str, ...], labels: Sequence[int] | np.ndarray) -> None:
        super().__init__(source, np.arange(len(source)))
        self.classes, self.labels = classes, np.asarray(labels, dtype=np.int64)

    def __getattr__(self, name: str) -> Any:
        if name in ("frames", "frame_count"):  # of sequences
            return getattr(self.__dict__["source"], name)
        return super().__getattr__(name)

    @cached_property
    def targets(self) -> np.ndarray:
        """The class of every image; −1 stays −1, which is no class."""
        old = self.source.targets
        return np.where(old >= 0, self.labels[old], old)


def by_name(source: Any, known: Sequence[str]) -> Any:
    """The source with the labels of the classes that a model knows; None where not every name is among them."""
    places = places_by_name(source.classes, known)
    if places is None or (places == list(range(len(known)))):
        return source if places else None
    return Relabelled(source, tuple(known), places)


def same_order(train: Source, val: Source, classes: Sequence[str]) -> tuple[Source, Source]:
    """Two sources of the same classes in the order of ``classes``, where these are the first one's."""
    found = by_name(train, classes)
    if not isinstance(found, Relabelled) or found is train:
        return train, val
    return found, Relabelled(val, found.classes, found.labels)  # its names may be numbers, in the first one's order


def by_index(source: Source, known: Sequence[str] | None, *, outputs: int) -> Source | None:
    """The source with its names as labels; None where not every name is the number of one of a model's classes."""
    names = source.classes
    if not are_integers(names) or len(names) >= outputs or (known and are_integers(known) and not are_ranks(known)):
        return None
    numbers = [int(name) for name in names]
    if min(numbers) < 0 or max(numbers) >= outputs or len(set(numbers)) < len(numbers):
        return None
    return Relabelled(source, tuple(known or map(str, range(outputs))), numbers)


def of_folders(source: Any) -> bool:
    """Whether the class names of a source are those of folders."""
    if isinstance(source, Joined):
        return all(map(of_folders, source.parts))
    return of_folders(source.source) if isinstance(source, Subset) else isinstance(source, FolderSource)
