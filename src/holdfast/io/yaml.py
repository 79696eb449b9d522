"""Safe reading of YAML files: plain data of limited size."""

import re
from typing import Any

import yaml

from holdfast.errors import HoldfastError

# PyYAML implements YAML 1.1, which reads 1e-4 (no decimal point) as text; YAML 1.2 and users mean a number
SCIENTIFIC = ("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789"))
MAX_LETTERS = 2**20
MAX_VALUES = 100_000  # an alias counts as often as it is used


class _Loader(yaml.SafeLoader):
    """SafeLoader that also reads 1e-4 as a number."""


_Loader.add_implicit_resolver(*SCIENTIFIC)


def read_yaml(text: str, *, name: str) -> Any:
    """Parse YAML into plain data; object tags and exploding aliases are refused."""
    if len(text) > MAX_LETTERS:
        raise HoldfastError(f"{name} must have at most {MAX_LETTERS} letters, got {len(text)}")
    try:
        values = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise HoldfastError(f"{name} cannot be read, it must be YAML ({reason})") from error
    _check_size(values, name=name)
    return values


def _check_size(values: Any, *, name: str) -> None:
    """Refuse recursive aliases and exponential expansion (billion laughs)."""
    waiting, count = [values], 0
    while waiting:
        value = waiting.pop()
        count += 1
        if count > MAX_VALUES:
            raise HoldfastError(f"{name} must hold at most {MAX_VALUES} values, got more through aliases")
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list | tuple | set):
            waiting.extend(value)
