"""Text description of plain values by their content, the same in every process; for the code digests of plug-ins."""

import functools
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from holdfast.runtime.own_code import digest, is_own

PLAIN = (bool, int, float, complex, str, bytes, type(None), range, slice)
DEEPEST = 20  # levels of nested values

_first: dict[int, tuple[Any, str]] = {}  # with the value, so that no other gets its id


def first_text(value: Any) -> str:
    """Describe a value as it was when this was first asked: code that runs may keep a cache in a dict or list."""
    if isinstance(value, PLAIN):
        return repr(value)
    if id(value) not in _first:
        _first[id(value)] = (value, value_text(value))
    return _first[id(value)][1]


def value_text(value: Any, depth: int = 0) -> str:
    """Describe a value by its content; functions, classes and objects of packages by their names."""
    if depth > DEEPEST:
        return "deeper"
    if isinstance(value, PLAIN):
        return repr(value)
    inside = functools.partial(value_text, depth=depth + 1)
    if isinstance(value, Mapping):
        return f"dict[{', '.join(sorted(f'{inside(key)}: {inside(each)}' for key, each in value.items()))}]"
    if isinstance(value, set | frozenset):
        return f"set[{', '.join(sorted(map(inside, value)))}]"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}[{', '.join(map(inside, value))}]"
    return _object(value, inside)


def _object(value: Any, inside: Callable[[Any], str]) -> str:
    if isinstance(value, functools.partial):
        return f"partial{inside([value.func, value.args, value.keywords])}"
    if isinstance(value, ModuleType | type) or inspect.isroutine(value):
        return str(getattr(value, "__name__", ""))
    if hasattr(value, "__array__"):  # of NumPy or PyTorch
        import numpy as np

        array = np.asarray(value)
        content = inside(array.tolist()) if array.dtype == object else digest(array.tobytes())
        return f"array {array.dtype} {array.shape} {content}"
    held = inside(vars(value)) if is_own(type(value)) and hasattr(value, "__dict__") else ""
    return f"{type(value).__qualname__} {held}"
