"""Data sources: ``open_data("digits")``, ``"npz:FILE"``, ``"folder:DIR"``, ``"cifar10:DIR"``, ``"a+b+c"``.

``open_official("imagenet-c:DIR")`` finds the cells of the official test sets.
"""

from typing import Any

from holdfast.data.factory import SOURCES, open_data, register_source
from holdfast.data.official_sets import OFFICIAL, OfficialSet, SequenceSource, is_official, open_official
from holdfast.data.source import ArraySource, Source, UnreadableImage, check_known_classes, check_same_classes
from holdfast.data.subsets import Joined, Subset, stratified_subset, turned_images

__all__ = [
    "OFFICIAL",
    "SOURCES",
    "ArraySource",
    "Joined",
    "OfficialSet",
    "SequenceSource",
    "Source",
    "Subset",
    "UnreadableImage",
    "check_known_classes",
    "check_same_classes",
    "from_torch",
    "is_official",
    "open_data",
    "open_official",
    "register_source",
    "stratified_subset",
    "turned_images",
]


def __getattr__(name: str) -> Any:
    if name == "from_torch":  # the only part of this package that needs torch
        from holdfast.data.torch_datasets import from_torch

        return from_torch
    raise AttributeError(f"module 'holdfast.data' has no attribute {name!r}")
