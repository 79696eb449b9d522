"""Dry runs: estimates of a command's work and time, and the comparison with the actual time afterwards.

``--dry-run`` estimates from a few seconds of timing. The estimate is stored in the cache folder under the
command's arguments, so that the command can compare it with the actual time. Nothing else is written.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.io import atomic
from holdfast.io.folder_index import cache_folder
from holdfast.runtime.progress import clock

try:
    import resource
except ImportError:  # Windows, where the time of child processes stays unknown
    resource = None  # type: ignore[assignment]

# arguments that change neither the work nor its processor time
HARMLESS = ("dry_run", "on", "gather", "cpus_per_task", "gpus_per_task", "resume", "workers", "processes", "fresh")


class Seconds(NamedTuple):
    """Processor time and wall time in seconds."""

    processor: float
    wall: float

    def __add__(self, other: object) -> "Seconds":
        assert isinstance(other, tuple)
        return Seconds(self.processor + other[0], self.wall + other[1])

    def times(self, factor: float) -> "Seconds":
        """Both times multiplied by a factor."""
        return Seconds(self.processor * factor, self.wall * factor)


NOTHING = Seconds(0.0, 0.0)


@dataclass(frozen=True)
class DryRunReport:
    """Result of a dry run.

    Attributes:
        what: description of the work in a sentence.
        counts: numbers of images, cells, units …, in the order of printing.
        size: bytes that will be written to disk.
        spent: estimated time of the whole work.
        at_least: whether the time is a lower bound, because a part took too long to time.
        parts: processor time by part.
        remarks: further remarks.
    """

    what: str
    counts: Mapping[str, int]
    size: int
    spent: Seconds
    at_least: bool = False
    parts: Mapping[str, float] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Human-readable lines of the report."""
        least = "at least " if self.at_least else ""
        shares = {
            name: f"{100 * value / max(sum(self.parts.values()), 1e-9):.0f} %" for name, value in self.parts.items()
        }
        of_it = f" ({', '.join(f'{name} {share}' for name, share in shares.items())})" if shares else ""
        return [
            self.what,
            "  " + ", ".join(f"{count:,} {name}" for name, count in self.counts.items()),
            f"  on disk: {human_bytes(self.size)}",
            f"  time: {least}{human_seconds(self.spent.processor)} of processor time{of_it}, "
            f"{least}{clock(self.spent.wall)} here; N processors elsewhere need about 1/N of the processor time",
            *(f"  {remark}" for remark in self.remarks),
        ]


def in_sum(forecasts: Sequence[DryRunReport]) -> DryRunReport:
    """Sum of several estimates."""
    parts: dict[str, float] = {}
    for each in forecasts:
        for name, value in each.parts.items():
            parts[name] = parts.get(name, 0.0) + value
    spent = NOTHING
    for each in forecasts:
        spent += each.spent
    return DryRunReport("", {}, sum(each.size for each in forecasts), spent, any(f.at_least for f in forecasts), parts)


def time_work(work: Callable[..., Any], *arguments: Any) -> tuple[Seconds, Any]:
    """Run a function; returns its time in this process and its result."""
    wall, processor = time.perf_counter(), time.process_time()
    result = work(*arguments)
    return Seconds(time.process_time() - processor, time.perf_counter() - wall), result


_elsewhere = [0.0]  # processor seconds spent on other machines


def add_elsewhere(seconds: float) -> None:
    """Add processor seconds spent on other machines for this process."""
    _elsewhere[0] += seconds


def spent() -> float:
    """Processor seconds of this process, its finished children, and other machines on its behalf."""
    if resource is None:
        return time.process_time() + _elsewhere[0]
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used) + _elsewhere[0]


def remember(command: str, arguments: Mapping[str, Any], forecast: DryRunReport) -> None:
    """Store an estimate in the cache until its command runs; does nothing if the cache is not writable."""
    with suppress(OSError):
        path = _path(command, arguments)
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, {"said": forecast.spent.processor, "at_least": forecast.at_least, "took": 0.0, "running": False})


class Account:
    """Time spent by a command so far."""

    def __init__(self, before: float = 0.0) -> None:
        self.before = before
        self.comparison: dict[str, float] | None = None
        self.sentence = ""

    @property
    def took(self) -> float:
        """Processor seconds, including earlier attempts."""
        return self.before + spent()


@contextmanager
def compare_with_dry_run(command: str, arguments: Mapping[str, Any]) -> Iterator[Account]:
    """Compare a command's time with its dry run's estimate; interrupted attempts are included, unless killed.

    After the block, the account has a ``sentence`` and a ``comparison``, if there was an estimate.
    """
    path = _path(command, arguments)
    stored = _read_dry_run(path)
    if stored is None:
        yield Account()
        return
    account = Account(stored["took"])
    with suppress(OSError):
        _write(path, {**stored, "running": True})
    try:
        yield account
    except BaseException:
        with suppress(OSError):
            _write(path, {**stored, "took": account.took})
        raise
    path.unlink(missing_ok=True)
    if not stored["running"]:  # else an attempt was killed, whose time is unknown
        took = account.took
        account.comparison = {"said": round(stored["said"], 1), "took": round(took, 1)}
        account.sentence = how_far_off(stored["said"], took, at_least=bool(stored["at_least"]))


def how_far_off(said: float, took: float, *, at_least: bool = False) -> str:
    """Compare the estimated with the actual time in a sentence."""
    off = 100 * (said - took) / max(took, 1e-9)
    least = "at least " if at_least else ""
    verdict = "exactly that" if abs(off) < 0.5 else f"{abs(off):.0f} % too {'much' if off > 0 else 'little'}"
    return (
        f"took {human_seconds(took)} of processor time; the dry run estimated {least}{human_seconds(said)}, {verdict}"
    )


def human_seconds(value: float) -> str:
    """Format a time in seconds, minutes or hours."""
    if value < 120:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:,.1f} h"


def human_bytes(value: float) -> str:
    """Format a size in decimal units, such as MB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if value >= 10 or unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def _path(command: str, arguments: Mapping[str, Any]) -> Path:
    chosen = {name: str(value) for name, value in arguments.items() if name not in HARMLESS}
    text = json.dumps([command, os.getcwd(), chosen], sort_keys=True)
    return cache_folder() / "forecasts" / f"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}.json"


def _write(path: Path, values: dict[str, Any]) -> None:
    atomic.write_text(path, json.dumps(values) + "\n")


def _read_dry_run(path: Path) -> dict[str, Any] | None:
    try:
        values = json.loads(path.read_text())
        return {
            "said": float(values["said"]),
            "at_least": bool(values["at_least"]),
            "took": float(values["took"]),
            "running": bool(values["running"]),
        }
    except (OSError, ValueError, TypeError, KeyError):
        return None
