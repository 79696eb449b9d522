"""Order of class names, which defines the labels: integers by value, other names alphabetically."""

import re
from collections.abc import Iterable, Sequence

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
