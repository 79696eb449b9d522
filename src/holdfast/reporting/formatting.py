"""Numbers and names as people read them."""

import math
from collections.abc import Sequence

from holdfast.plotting.files import printable

LONGEST = 80
NOT_MEASURED = "–"


def clean_name(text: object) -> str:
    """A name that any page and figure can hold: one line, no control characters, no halves of characters."""
    kept = printable(" ".join(str(text).split()))
    return kept if len(kept) <= LONGEST else kept[: LONGEST - 1] + "…"


def distinct_names(names: Sequence[str]) -> list[str]:
    """The same names, numbered where several are alike."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return result if len(set(result)) == len(result) else distinct_names(result)


def number(value: float, *, digits: int = 1) -> str:
    """Fixed digits; a dash for what was not measured; no negative zero."""
    if math.isnan(value):
        return NOT_MEASURED
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def signed(value: float, *, digits: int = 1) -> str:
    """With its sign."""
    text = number(value, digits=digits)
    return f"+{text}" if value > 0 and text.strip("0.") else text


def span(low: float, high: float, *, digits: int = 1) -> str:
    """The bounds of an interval."""
    return f"{number(low, digits=digits)} to {number(high, digits=digits)}"


def kind_label(kind: str) -> str:
    """``gaussian_noise`` → ``gaussian noise``."""
    return kind.replace("_", " ")
