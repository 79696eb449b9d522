"""Mapping of class folders to a model's classes: by rank, by index, by name or by wnid.

===========  ===========================================================================================
rank         the folder's rank: by value if all names are integers, else alphabetically
index        the model has more classes than there are folders, and every name is a valid class index
name         the model stores its class names (runs do), and every folder has one of these names
wnid         the model has ImageNet's 1000 classes, and the folders are some of their wnids
map          by a class map, see `holdfast.data.class_maps`
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
    "rank": "each class folder's rank in sorted order",
    "index": "each class folder's name is the model's class index",
    "name": "the class names stored with the model",
    "wnid": "each class folder's wnid is one of ImageNet's 1000 classes",
    "map": "the class map",
}


class Relabelled(Subset):
    """All images of a source, relabelled for another list of classes; ``labels[old]`` is the new label."""

    def __init__(self, source: Source, classes: tuple[str, ...], labels: Sequence[int] | np.ndarray) -> None:
        super().__init__(source, np.arange(len(source)))
        self.classes, self.labels = classes, np.asarray(labels, dtype=np.int64)

    def __getattr__(self, name: str) -> Any:
        if name in ("frames", "frame_count"):  # of sequences
            return getattr(self.__dict__["source"], name)
        return super().__getattr__(name)

    @cached_property
    def targets(self) -> np.ndarray:
        """The class of every image; −1 (no label) stays −1."""
        old = self.source.targets
        return np.where(old >= 0, self.labels[old], old)


def by_name(source: Any, known: Sequence[str]) -> Any:
    """Relabel a source by a model's class names; None if a name is unknown to the model."""
    places = places_by_name(source.classes, known)
    if places is None or (places == list(range(len(known)))):
        return source if places else None
    return Relabelled(source, tuple(known), places)


def same_order(train: Source, val: Source, classes: Sequence[str]) -> tuple[Source, Source]:
    """Relabel two sources of the same classes to the order of ``classes``, if these are the first one's."""
    found = by_name(train, classes)
    if not isinstance(found, Relabelled) or found is train:
        return train, val
    return found, Relabelled(val, found.classes, found.labels)  # its names may be numbers, in the first one's order


def by_index(source: Source, known: Sequence[str] | None, *, outputs: int) -> Source | None:
    """Relabel a source by its integer names; None if a name is not a class index of the model."""
    names = source.classes
    if not are_integers(names) or len(names) >= outputs or (known and are_integers(known) and not are_ranks(known)):
        return None
    numbers = [int(name) for name in names]
    if min(numbers) < 0 or max(numbers) >= outputs or len(set(numbers)) < len(numbers):
        return None
    return Relabelled(source, tuple(known or map(str, range(outputs))), numbers)


def of_folders(source: Any) -> bool:
    """Whether the class names of a source come from folders."""
    if isinstance(source, Joined):
        return all(map(of_folders, source.parts))
    return of_folders(source.source) if isinstance(source, Subset) else isinstance(source, FolderSource)


def labels_by_folder(source: Any) -> dict[str, int]:
    """Label of every class folder of a source, among the answers of the model if they were mapped to these."""
    if isinstance(source, Relabelled):
        return dict(zip(source.source.classes, source.labels.tolist(), strict=True))
    return {name: label for label, name in enumerate(source.classes)}
