"""What a value must be, in words: the parser names Python's types, a user wrote YAML or an option."""

import re
import types
import typing
from collections.abc import Mapping
from typing import Any

# one of a kind, and several of it
WORDS: dict[Any, tuple[str, str]] = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "true or false"),
    str: ("text", "texts"),
    types.NoneType: ("null", "null"),
}


def in_words(kind: Any) -> str:
    """A type as a user would say it, such as ``a whole number or null`` for ``int | None``."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind in WORDS:
        return WORDS[kind][0]
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, inner))}"
    if origin in (typing.Union, types.UnionType):  # a whole number is a number
        said = [in_words(item) for item in inner if not (item is int and float in inner)]
        return " or ".join(said)
    if origin is dict:
        return f"{WORDS[inner[1]][1]} by names" if inner[1] in WORDS else "keys and values"
    if origin in (list, tuple) and inner[0] in WORDS:
        count = f"{len(inner)} " if origin is tuple and inner[-1] is not Ellipsis else ""
        return f"a list of {count}{WORDS[inner[0]][1]}"
    return getattr(kind, "__name__", str(kind))


def refusal(message: str, kinds: Mapping[str, Any], names: Mapping[str, str] | None = None) -> str:
    """What the parser says of a value that is of another kind, in our words; anything else as it says it."""
    message = " ".join(message.split())
    *keys, innermost = re.split(r'Parser key "([^"]+)":', message)[1:] or [message]
    key = ".".join(keys[::2])
    several = "Does not validate against any" in innermost  # each kind with its own complaint, then the value
    given = re.search(f"{'Given' if several else 'Got'} value: (.*?)(?: - Expected a .*)?$", innermost)
    if key not in kinds or given is None:
        return message
    return f"{(names or {}).get(key, key)} must be {in_words(kinds[key])}, got {given[1] or repr('')}"
