"""Where images come from: ``open_data("digits")``, ``"npz:FILE"``, ``"folder:DIR"``, ``"cifar10:DIR"``, ``"a+b+c"``."""

from holdfast.data.combine import Joined, Subset, stratified_subset
from holdfast.data.source import ArraySource, Source, UnreadableImage, check_same_classes
from holdfast.data.specs import SOURCES, open_data

__all__ = [
    "SOURCES",
    "ArraySource",
    "Joined",
    "Source",
    "Subset",
    "UnreadableImage",
    "check_same_classes",
    "open_data",
    "stratified_subset",
]
