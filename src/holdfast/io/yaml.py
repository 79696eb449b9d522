"""YAML from people's files: plain data of a sensible size, or one sentence."""

import re
from typing import Any

import yaml

from holdfast.errors import HoldfastError

# 1e-4 is a number, as in YAML 1.2 and as people write it; YAML 1.1, which the library reads, takes it for text
SCIENTIFIC = ("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789"))
MOST_VALUES = 100_000  # aliases count as often as they are used


class _Loader(yaml.SafeLoader):
    """Plain data alone."""


_Loader.add_implicit_resolver(*SCIENTIFIC)


def read_yaml(text: str, *, name: str) -> Any:
    """The plain data of a YAML text; tags that make objects are refused, and so are aliases without an end."""
    try:
        values = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise HoldfastError(f"{name} cannot be read, it must be YAML ({reason})") from error
    _check_size(values, name=name)
    return values


def _check_size(values: Any, *, name: str) -> None:
    """An alias may stand for something that contains it, or for something that is repeated a billion times."""
    waiting, count = [values], 0
    while waiting:
        value = waiting.pop()
        count += 1
        if count > MOST_VALUES:
            raise HoldfastError(f"{name} must hold at most {MOST_VALUES} values, got aliases that repeat without end")
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list | tuple | set):
            waiting.extend(value)
