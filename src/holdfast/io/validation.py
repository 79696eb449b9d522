"""Validation of user-supplied values and names, with one-sentence errors."""

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

from holdfast.errors import HoldfastError, nearest

# singular and plural
WORDS: dict[Any, tuple[str, str]] = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "true or false"),
    str: ("text", "texts"),
    types.NoneType: ("null", "null"),
}
DIGITS = r"[-+]?[\d.]+(?:[eE][-+]?\d{1,3})?"  # at most three: Fraction("1e999999") would compute a million digits
LISTS = (list, tuple, Sequence)
UNIONS = (typing.Union, types.UnionType)


def counted(count: int, thing: str) -> str:
    """A number of things, such as ``1 image`` or ``2 images``."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def in_words(kind: Any) -> str:
    """Describe a type for users, such as ``a whole number or null`` for ``int | None``."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind in WORDS:
        return WORDS[kind][0]
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, inner))}"
    if origin in UNIONS:  # "a number" includes whole numbers
        return " or ".join(in_words(item) for item in inner if not (item is int and float in inner))
    if origin is dict:
        return f"{WORDS[inner[1]][1]} by names" if inner[1] in WORDS else "keys and values"
    if origin in LISTS and inner[0] in WORDS:
        count = f"{len(inner)} " if origin is tuple and inner[-1] is not Ellipsis else ""
        return f"a list of {count}{WORDS[inner[0]][1]}"
    return getattr(kind, "__name__", str(kind))


def fits(value: Any, kind: Any) -> bool:
    """Whether a value from YAML matches a type; types without YAML values match anything."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in UNIONS:
        return any(fits(value, item) for item in inner)
    if origin is typing.Literal:
        return value in inner
    if origin in LISTS and inner[0] in WORDS:
        several = len(inner) if origin is tuple and inner[-1] is not Ellipsis else None
        listed = isinstance(value, list | tuple) and several in (None, len(value))
        return listed and all(fits(item, inner[0]) for item in value)
    if kind in (int, float):
        return isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    return isinstance(value, kind) if kind in WORDS else True


def number(text: str) -> Fraction | None:
    """Parse a number or a fraction such as the radius 4/255; None if it is neither or overflows."""
    if not re.fullmatch(f"{DIGITS}(/{DIGITS})?", text):
        return None
    above, _, below = text.partition("/")
    try:
        read = Fraction(above) / Fraction(below or 1)
        float(read)
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    return read


def checked_options(
    options: Any, *called: Callable[..., Any], whose: str, withheld: Sequence[str] = ()
) -> dict[str, Any]:
    """Check a recipe's options against the signatures of the functions that receive them.

    Args:
        options: the values from the recipe; a fraction in text is converted where a number is expected.
        called: the functions or classes that receive them.
        whose: name of the owner in error messages.
        withheld: arguments that a recipe may not set.
    """
    if not isinstance(options, Mapping):
        raise HoldfastError(f"options of {whose} must be keys and values, such as {{weight: 1.0}}, got {options!r}")
    arguments = {key: value for each in called for key, value in inspect.signature(each).parameters.items()}
    kinds = {key: kind for each in called for key, kind in _kinds(each).items()}
    known = [key for key in arguments if key not in withheld]
    takes_any = any(
        argument.kind is argument.VAR_KEYWORD for argument in arguments.values()
    )  # which are checked by the callee
    checked = {}
    for key, given in options.items():
        if key not in known and not takes_any:
            hint = nearest(str(key), known) or f"; it takes {', '.join(known) or 'none'}"
            raise HoldfastError(f"unknown option {key!r} of {whose}{hint}")
        kind = kinds.get(key, Any)
        read = number(given) if isinstance(given, str) and float in (kind, *typing.get_args(kind)) else None
        value = given if read is None else float(read)
        if not fits(value, kind):
            raise HoldfastError(f"{key} of {whose} must be {in_words(kind)}, got {given!r}")
        checked[str(key)] = value
    return checked


def _kinds(called: Callable[..., Any]) -> dict[str, Any]:
    bare: Any = getattr(called, "func", called)  # unwrap functools.partial
    try:
        return typing.get_type_hints(bare.__init__ if isinstance(bare, type) else bare)  # type: ignore[misc]
    except (NameError, TypeError, AttributeError):  # a plug-in whose hints only a type checker can resolve
        return {}


def refusal(message: str, kinds: Mapping[str, Any], names: Mapping[str, str] | None = None) -> str:
    """Rewrite jsonargparse's error about a value of the wrong type; other messages stay unchanged."""
    message = " ".join(message.split())
    *keys, innermost = re.split(r'Parser key "([^"]+)":', message)[1:] or [message]
    key = ".".join(keys[::2])
    several = "Does not validate against any" in innermost  # a union: one complaint per type, then the value
    given = re.search(f"{'Given' if several else 'Got'} value: (.*?)(?: - Expected a .*)?$", innermost)
    if key not in kinds or given is None:
        return message
    return f"{(names or {}).get(key, key)} must be {in_words(kinds[key])}, got {given[1] or repr('')}"


def parse_size(given: Any) -> int | tuple[int, int] | None:
    """Parse a size in pixels: a number, ``448``, ``1024x2048`` (height first) or a pair."""
    if isinstance(given, str):
        sides = given.split("x")
        if len(sides) <= 2 and all(side.isascii() and side.isdigit() for side in sides):
            return int(sides[0]) if len(sides) == 1 else (int(sides[0]), int(sides[1]))
    elif given is None or isinstance(given, Integral):
        return given if given is None else int(given)
    elif isinstance(given, Sequence) and len(given) == 2 and all(isinstance(side, Integral) for side in given):
        return (int(given[0]), int(given[1]))
    raise HoldfastError(f"size must be a number of pixels, or HEIGHTxWIDTH such as 1024x2048, got {given!r}")


def comma_list(text: str) -> tuple[str, ...]:
    """Split ``a, b,c`` at commas; empty parts are dropped."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def chosen_names(names: str | Sequence[str], known: Iterable[str], *, one: str, several: str) -> tuple[str, ...]:
    """Check names from a comma list or sequence and drop duplicates; ``one`` and ``several`` name them in errors."""
    every = tuple(known)
    words = comma_list(names) if isinstance(names, str) else (word.strip() for word in names if word.strip())
    chosen = tuple(dict.fromkeys(words))
    for name in chosen:
        if name not in every:
            hint = nearest(name, every) or f"; expected some of {', '.join(every)}"
            raise HoldfastError(f"unknown {one} {name!r}{hint}")
    if not chosen:
        raise HoldfastError(f"{several} must name at least one of {', '.join(every)}, got none")
    return chosen


def file_name(text: str, *, allowed: str = "-_.") -> str:
    """Turn text into a part of a file name: all but letters, digits and ``allowed`` become dashes."""
    return "".join(letter if letter.isalnum() or letter in allowed else "-" for letter in text)
