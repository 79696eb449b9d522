"""Exceptions of Holdfast and hints for misspelt names."""

import difflib
from collections.abc import Iterable


class HoldfastError(ValueError):
    """Bad input: one sentence with the argument, the expectation and the value; the command line exits with 2."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message; the name of its class if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def nearest(name: str, known: Iterable[str], *, count: int = 3, cutoff: float = 0.5) -> str:
    """Return a hint such as ``; did you mean 'fog' or 'frost'?`` for a misspelt name, empty if nothing is near."""
    matches = difflib.get_close_matches(name, list(dict.fromkeys(known)), n=count, cutoff=cutoff)
    return f"; did you mean {' or '.join(repr(match) for match in matches)}?" if matches else ""
