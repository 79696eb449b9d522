"""Formatting of numbers and names for readers."""

import math
from collections.abc import Sequence

from holdfast.metrics.intervals import Interval
from holdfast.plotting.files import printable

LONGEST = 80
NOT_MEASURED = "–"


def clean_name(text: object) -> str:
    """Make a name printable on any page: one line, no control characters or lone surrogates, limited length."""
    name = printable(" ".join(str(text).split()))
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def short_spec(spec: str) -> str:
    """A model or data spec without the folders of its paths: ``folder:/home/me/val`` → ``folder:val``."""
    kind, colon, rest = spec.rpartition(":") if "://" in spec else spec.partition(":")
    parts = [_last_part(part) for part in (rest if colon else spec).split(",")]
    return f"{kind}{colon}{','.join(parts)}" if colon else ",".join(parts)


def _last_part(text: str) -> str:
    return (
        text.rstrip("/").rpartition("/")[2] or text if text.startswith(("/", ".", "~")) or text.count("/") > 1 else text
    )


def distinct_names(names: Sequence[str]) -> list[str]:
    """Number equal names, so that all are distinct."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return result if len(set(result)) == len(result) else distinct_names(result)


def number(value: float, *, digits: int = 1) -> str:
    """Format with fixed digits; a dash for NaN, and no negative zero."""
    if math.isnan(value):
        return NOT_MEASURED
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def signed(value: float, *, digits: int = 1) -> str:
    """Format a number with an explicit sign."""
    text = number(value, digits=digits)
    return f"+{text}" if value > 0 and text.strip("0.") else text


def span(low: float, high: float, *, digits: int = 1) -> str:
    """Format the bounds of an interval."""
    return f"{number(low, digits=digits)} to {number(high, digits=digits)}"


def title_of(words: str) -> str:
    """Begin words with a capital letter, but for names such as mIoU."""
    return words if words[1:2].isupper() else words[:1].upper() + words[1:]


def kind_label(kind: str) -> str:
    """Format a corruption's name: ``gaussian_noise`` → ``gaussian noise``."""
    return kind.replace("_", " ")


def with_bounds(value: str, low: float, high: float, *, digits: int = 1) -> str:
    """Format a value with its interval: ``71.2 (68.0 to 74.1)``, everywhere in this form."""
    return value if math.isnan(low) else f"{value} ({span(low, high, digits=digits)})"


def difference_text(interval: Interval, *, digits: int = 1) -> str:
    """Format a difference with its interval: ``+1.0 (0.0 to 3.0)``."""
    return with_bounds(signed(interval.value, digits=digits), interval.low, interval.high, digits=digits)


def list_names(names: Sequence[str], *, most: int = 4, last: str = "and") -> str:
    """Join names as in a sentence; of many, the first ones and the number of the others."""
    listed = [*names[:most], f"{len(names) - most} more"] if len(names) > most else list(names)
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} {last} {listed[-1]}" if listed else ""
