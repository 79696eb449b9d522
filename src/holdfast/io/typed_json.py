"""Values of JSON as instances of the types that wrote them."""

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from holdfast.io.validation import fits


def from_json(value: Any, kind: Any) -> Any:
    """A value of JSON as an instance of a dataclass, tuple, mapping or plain type; raises TypeError if it is none."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        return kind(**{name: from_json(each, hints[name]) for name, each in _items(value, known=hints)})
    if origin is tuple and inner[-1] is Ellipsis:
        return tuple(from_json(each, inner[0]) for each in _checked(value, list))
    if origin is Mapping:
        return {name: from_json(each, inner[1]) for name, each in _items(value)}
    return _checked(value, kind)


def _items(value: Any, *, known: Mapping[str, Any] | None = None) -> list[tuple[str, Any]]:
    found = list(_checked(value, dict).items())
    if unknown := [name for name, _ in found if known is not None and name not in known]:
        raise TypeError(f"unknown keys {', '.join(unknown)}")
    return found


def _checked(value: Any, kind: Any) -> Any:
    if not (isinstance(value, kind) if kind in (list, dict) else fits(value, kind)):
        raise TypeError(f"expected {kind}, got {value!r}")
    return value
