"""The wall clock of a budget: it runs while something is trained or measured, also over several attempts."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.io import atomic
from holdfast.runtime.duration import parse_duration


def parse_budget(text: str) -> float:
    """Seconds of ``90s``, ``10m``, ``1h30m`` or ``1d``."""
    seconds = parse_duration(text) or 0.0
    if not 1 <= seconds < 1e8:
        raise HoldfastError(f"--budget must be a wall time such as 10m, 2h or 1d, got {text!r}")
    return seconds


class Clock:
    """Seconds that the budget has been used for; work is named, so that forecasts can be compared with it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self.spent: dict[str, float] = {k: float(v) for k, v in json.loads(path.read_text()).items()}
        except (OSError, ValueError, TypeError, AttributeError):
            self.spent = {}

    @property
    def elapsed(self) -> float:
        """Seconds so far."""
        return sum(self.spent.values())

    @contextmanager
    def counting(self, work: str) -> Iterator[None]:
        """Add the duration of the block, also if it is interrupted."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.spent[work] = round(self.spent.get(work, 0.0) + time.monotonic() - begin, 3)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_text(self._path, json.dumps(self.spent, indent=1) + "\n")
