"""ImageNet's 1000 classes in the order of their wnids, as timm lists them: wnids, names, and what a text stands for."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

WNID = re.compile(r"n\d{8}")
COUNT = 1000


@cache
def _info() -> Any:
    from timm.data import ImageNetInfo

    return ImageNetInfo()


@cache
def wnids() -> tuple[str, ...]:
    """The wnids; an output of a 1000-class model belongs to the wnid at its place."""
    return tuple(_info().label_names())


@cache
def indices() -> dict[str, int]:
    """Index of every wnid."""
    return {wnid: index for index, wnid in enumerate(wnids())}


@cache
def synonyms() -> tuple[tuple[str, ...], ...]:
    """Names of every class, the usual one first."""
    return tuple(tuple(_info().index_to_description(index).split(", ")) for index in range(COUNT))


@cache
def _by_name() -> dict[str, tuple[int, ...]]:
    found: dict[str, set[int]] = {}
    for index, names in enumerate(synonyms()):
        for name in (*names, ", ".join(names)):
            found.setdefault(_key(name), set()).add(index)
    return {name: tuple(sorted(numbers)) for name, numbers in found.items()}


def find_class(text: str) -> tuple[int, ...]:
    """Indices of the classes that a wnid or a name stands for; ``crane`` is a bird and a machine, so it has two."""
    if WNID.fullmatch(text):
        return (indices()[text],) if text in indices() else ()
    return _by_name().get(_key(text), ())


def are_wnids(names: Sequence[str]) -> bool:
    """Whether all names are wnids."""
    return bool(names) and all(WNID.fullmatch(name) for name in names)


def display_names(classes: Sequence[str]) -> tuple[str, ...]:
    """Class names for tables: of ImageNet's wnids their usual name, with the wnid if two classes share it."""
    if not are_wnids(classes) or not any(name in indices() for name in classes):
        return tuple(classes)
    return tuple(_display_name(wnid) for wnid in classes)


def _display_name(wnid: str) -> str:
    if wnid not in indices():
        return wnid
    name = synonyms()[indices()[wnid]][0]
    return f"{name} ({wnid})" if len(_by_name()[_key(name)]) > 1 else name


def are_imagenet(names: Sequence[str]) -> bool:
    """Whether 1000 class names are ImageNet's, in its order: most of them are a wnid or a name of the class there."""
    if len(names) != COUNT:
        return False
    found = (find_class(name) or find_class(name.split(",")[0]) for name in names)
    return sum(index in places for index, places in enumerate(found)) > COUNT // 2


def _key(name: str) -> str:
    return " ".join(re.split(r"[\s_]+", name.strip().lower()))
