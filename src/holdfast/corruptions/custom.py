"""A corruption of one's own: one call, and ``holdfast corrupt``, evaluations, training and the report know it.

def stripes(images, draws, *, width):
    result = images.copy()  # every other band of rows turns black
    result[:, np.arange(images.shape[1]) // width % 2 == 1] = 0
    return result

register(stripes, severities=[{"width": width} for width in (8, 6, 4, 3, 2)], short="Stri", random=False)
"""

import inspect
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.corruptions.apply import FUNCTIONS
from holdfast.corruptions.c_bar_severities import C_BAR
from holdfast.corruptions.filters import Images
from holdfast.corruptions.severities import (
    GROUPS,
    KINDS,
    OWN,
    PRESETS,
    SEVERITIES,
    Kind,
    Row,
    add_kind,
    own_kinds,
    preset_of,
    severities_of,
)
from holdfast.errors import HoldfastError

Severities = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Registered:
    """All that another process must be told of one registered corruption."""

    kind: Kind
    function: Callable[..., Images]
    severities: Mapping[str, Row]


def register(
    function: Callable[..., Images],
    *,
    severities: Severities | Mapping[str, Severities],
    group: str = OWN,
    short: str = "",
    random: bool = True,
    name: str = "",
) -> Kind:
    """Make a corruption known under its function's name, or under ``name``.

    Args:
        function: ``function(images, draws, **parameters)`` with images uint8 (N, H, W, 3) and as many sources of draws,
            one per image (see `holdfast.corruptions.rng.Draws`), returns such images; at the top of a module, where
            worker processes find it.
        severities: the parameters of the five severities; or such five for each preset that it is defined for.
        group: the heading in tables; not one of the published groups, whose members are fixed.
        short: a heading of at most four letters.
        random: whether it draws.
        name: instead of the function's own.
    """
    name = name or getattr(function, "__name__", "")
    _check_names(name, group, short)
    given = severities if isinstance(severities, Mapping) else dict.fromkeys(PRESETS, severities)
    names = _parameter_names(function, name, given)
    _check_findable(function)
    rows = {preset: tuple(tuple(each[key] for key in names) for each in five) for preset, five in given.items()}
    kind = Kind(name, group, False, random, names, short)
    FUNCTIONS[name] = function
    add_kind(kind, rows)
    return kind


def registered() -> tuple[Registered, ...]:
    """What was registered here, to be told to a worker process."""
    return tuple(Registered(KINDS[name], FUNCTIONS[name], severities_of(name)) for name in own_kinds())


def know(corruptions: Sequence[Registered]) -> None:
    """In a worker process: enter what its parent had registered and this process has not."""
    for each in corruptions:
        if each.kind.name not in KINDS:
            FUNCTIONS[each.kind.name] = each.function
            add_kind(each.kind, each.severities)


def _check_names(name: str, group: str, short: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise HoldfastError(f"name must be small letters, digits and _, because folders are called so, got {name!r}")
    if name in KINDS:
        raise HoldfastError(f"corruption {name!r} is registered already; choose another name")
    published = [*GROUPS, "extra", C_BAR]
    if group in published:
        raise HoldfastError(f"group must be none of the published {', '.join(published)}, got {group!r}")
    if len(short) > 4:
        raise HoldfastError(f"short must have at most four letters, got {short!r}")


def _parameter_names(
    function: Callable[..., Images], name: str, severities: Mapping[str, Severities]
) -> tuple[str, ...]:
    for preset, five in severities.items():
        preset_of(preset)
        if len(five) != len(SEVERITIES):
            raise HoldfastError(f"severities must be five, each the parameters of {name}, got {len(five)}")
        for values in five:
            try:
                inspect.signature(function).bind([], [], **values)
            except TypeError as error:
                sentence = f"severities must be parameters that {name} takes, got {dict(values)} ({error})"
                raise HoldfastError(sentence) from error
    used = [tuple(values) for five in severities.values() for values in five]
    if not used or any(set(names) != set(used[0]) for names in used):
        raise HoldfastError(f"severities must name the same parameters of {name} at every severity")
    return used[0]


def _check_findable(function: Callable[..., Images]) -> None:
    try:
        pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise HoldfastError(
            f"function must stand at the top of a module, where worker processes find it ({error})"
        ) from error
