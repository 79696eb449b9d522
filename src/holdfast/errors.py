"""What Holdfast raises when it was asked for something that cannot be done."""

import difflib
from collections.abc import Iterable


class HoldfastError(ValueError):
    """One sentence that names the argument, what was expected and what came; the command line exits with 2."""


def nearest(name: str, known: Iterable[str], *, count: int = 3) -> str:
    """A hint such as ``; did you mean 'fog' or 'frost'?`` for a misspelt name, empty if nothing is near."""
    matches = difflib.get_close_matches(name, list(known), n=count, cutoff=0.5)
    return f"; did you mean {' or '.join(repr(match) for match in matches)}?" if matches else ""
