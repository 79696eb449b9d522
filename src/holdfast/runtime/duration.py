"""Durations as options take them: ``90s``, ``10m``, ``1h30m``, ``1.5h``, ``1d``."""

import re

SECONDS = (86400, 3600, 60, 1)
_DURATION = re.compile("".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit in "dhms"))


def parse_duration(text: str) -> float | None:
    """Seconds of a duration above 0; None if the text is none."""
    found = _DURATION.fullmatch(text)
    total = sum(float(part or 0) * each for part, each in zip(found.groups(), SECONDS, strict=True)) if found else 0
    return total or None
