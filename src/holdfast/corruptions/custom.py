"""User-defined corruptions: `register` adds one to ``holdfast corrupt``, evaluation, training and the report.

def stripes(images, draws, *, width):
    result = images.copy()  # every other band of rows turns black
    result[:, np.arange(images.shape[1]) // width % 2 == 1] = 0
    return result

register(stripes, severities=[{"width": width} for width in (8, 6, 4, 3, 2)], short="Stri", random=False)
"""

import inspect
import pickle
import re
import warnings
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
    """One registered corruption, in a form that can be sent to worker processes."""

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
    """Register a corruption under its function's name, or under ``name``.

    Args:
        function: ``function(images, draws, **parameters)`` takes uint8 images (N, H, W, 3) and one source of draws per
            image (see `holdfast.corruptions.rng.Draws`) and returns such images; it must be defined at the top level of
            a module, where worker processes can import it.
        severities: the parameters of the five severities, or such a list for each preset.
        group: the group in tables; not one of the published groups, whose members are fixed.
        short: a column heading of at most four letters.
        random: whether it uses random draws.
        name: the name to register, instead of the function's.
    """
    warnings.warn("register is now register_corruption(name, function, line, …)", DeprecationWarning, stacklevel=2)
    name = name or getattr(function, "__name__", "")
    return _register(function, severities, group=group, short=short, random=random, name=name, line="")


def register_corruption(
    name: str,
    function: Callable[..., Images],
    line: str = "",
    *,
    severities: Severities | Mapping[str, Severities],
    group: str = OWN,
    short: str = "",
    random: bool = True,
) -> Kind:
    """Register a corruption; ``line`` describes it in ``holdfast list``, the others are as in `register`."""
    return _register(function, severities, group=group, short=short, random=random, name=name, line=line)


def _register(
    function: Callable[..., Images],
    severities: Severities | Mapping[str, Severities],
    *,
    group: str,
    short: str,
    random: bool,
    name: str,
    line: str,
) -> Kind:
    _check_names(name, group, short)
    given = severities if isinstance(severities, Mapping) else dict.fromkeys(PRESETS, severities)
    names = _parameter_names(function, name, given)
    _check_findable(function)
    rows = {preset: tuple(tuple(each[key] for key in names) for each in five) for preset, five in given.items()}
    kind = Kind(name, group, False, random, names, short, line)
    FUNCTIONS[name] = function
    add_kind(kind, rows)
    return kind


def registered() -> tuple[Registered, ...]:
    """All corruptions registered in this process, for its worker processes."""
    return tuple(Registered(KINDS[name], FUNCTIONS[name], severities_of(name)) for name in own_kinds())


def know(corruptions: Sequence[Registered]) -> None:
    """Register the parent process's corruptions in a worker process, unless it has them already."""
    for each in corruptions:
        if each.kind.name not in KINDS:
            FUNCTIONS[each.kind.name] = each.function
            add_kind(each.kind, each.severities)


def _check_names(name: str, group: str, short: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise HoldfastError(f"name must be lower-case letters, digits and _, since it names folders, got {name!r}")
    if name in KINDS:
        raise HoldfastError(f"corruption {name!r} is already registered; choose another name")
    published = [*GROUPS, "extra", C_BAR]
    if group in published:
        raise HoldfastError(f"group must not be a published one ({', '.join(published)}), got {group!r}")
    if len(short) > 4:
        raise HoldfastError(f"short must have at most four letters, got {short!r}")


def _parameter_names(
    function: Callable[..., Images], name: str, severities: Mapping[str, Severities]
) -> tuple[str, ...]:
    for preset, five in severities.items():
        preset_of(preset)
        if len(five) != len(SEVERITIES):
            raise HoldfastError(f"severities must be five sets of parameters of {name}, got {len(five)}")
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
            f"function must be defined at the top level of a module, where worker processes can import it ({error})"
        ) from error
