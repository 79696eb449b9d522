"""What a command would do and how long that would take, and afterwards how far off it was.

A forecast is made by ``--dry-run`` from a few seconds of measuring. It is remembered in the cache folder under the
command's own arguments, so that the command itself can say in the end what it took. Nothing else is written.
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
except ImportError:  # Windows: what children spent stays unknown there
    resource = None  # type: ignore[assignment]

# arguments that change neither what is done nor how much the processors have to do
HARMLESS = ("dry_run", "on", "gather", "cpus_per_task", "gpus_per_task", "resume", "workers", "processes", "fresh")


class Seconds(NamedTuple):
    """Time of the processors, and by the clock."""

    processor: float
    wall: float

    def __add__(self, other: object) -> "Seconds":
        assert isinstance(other, tuple)
        return Seconds(self.processor + other[0], self.wall + other[1])

    def times(self, factor: float) -> "Seconds":
        """So many times as long."""
        return Seconds(self.processor * factor, self.wall * factor)


NOTHING = Seconds(0.0, 0.0)


@dataclass(frozen=True)
class DryRunReport:
    """What would run.

    Attributes:
        what: a sentence.
        counts: what there is how often, in the order of telling: images, cells, units …
        size: bytes that will be on disk.
        spent: how long it will take, from nothing to the end.
        at_least: whether something took longer than anybody wants to wait for a forecast.
        parts: shares of the processors' time, by name.
        remarks: further sentences.
    """

    what: str
    counts: Mapping[str, int]
    size: int
    spent: Seconds
    at_least: bool = False
    parts: Mapping[str, float] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """For people."""
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
            f"{least}{clock(self.spent.wall)} here; N processors elsewhere need about an N-th of the processor time",
            *(f"  {remark}" for remark in self.remarks),
        ]


def in_sum(forecasts: Sequence[DryRunReport]) -> DryRunReport:
    """Several forecasts, one after the other, as one to remember."""
    parts: dict[str, float] = {}
    for each in forecasts:
        for name, value in each.parts.items():
            parts[name] = parts.get(name, 0.0) + value
    spent = NOTHING
    for each in forecasts:
        spent += each.spent
    return DryRunReport("", {}, sum(each.size for each in forecasts), spent, any(f.at_least for f in forecasts), parts)


def time_work(work: Callable[..., Any], *arguments: Any) -> tuple[Seconds, Any]:
    """What a piece of work takes in this process, and its result."""
    wall, processor = time.perf_counter(), time.process_time()
    result = work(*arguments)
    return Seconds(time.process_time() - processor, time.perf_counter() - wall), result


_elsewhere = [0.0]  # processor seconds that other machines told of


def add_elsewhere(seconds: float) -> None:
    """So much more was done for this process elsewhere."""
    _elsewhere[0] += seconds


def spent() -> float:
    """Processor seconds of this process, of its children that have ended, and of what was done for it elsewhere."""
    if resource is None:
        return time.process_time() + _elsewhere[0]
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used) + _elsewhere[0]


def remember(command: str, arguments: Mapping[str, Any], forecast: DryRunReport) -> None:
    """Keep a forecast for the day its command runs; where nothing can be kept, nothing is."""
    with suppress(OSError):
        path = _path(command, arguments)
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, {"said": forecast.spent.processor, "at_least": forecast.at_least, "took": 0.0, "running": False})


class Account:
    """What a command has spent so far."""

    def __init__(self, before: float = 0.0) -> None:
        self.before = before
        self.comparison: dict[str, float] | None = None
        self.sentence = ""

    @property
    def took(self) -> float:
        """Processor seconds, of earlier attempts too."""
        return self.before + spent()


@contextmanager
def compare_with_dry_run(command: str, arguments: Mapping[str, Any]) -> Iterator[Account]:
    """Compare what a command takes with what its dry run said; attempts that were stopped count, unless killed.

    When the block has ended well, the account holds a ``sentence`` and a ``comparison``, if there was a forecast.
    """
    path = _path(command, arguments)
    told = _read_dry_run(path)
    if told is None:
        yield Account()
        return
    account = Account(told["took"])
    with suppress(OSError):
        _write(path, {**told, "running": True})
    try:
        yield account
    except BaseException:
        with suppress(OSError):
            _write(path, {**told, "took": account.took})
        raise
    path.unlink(missing_ok=True)
    if not told["running"]:  # otherwise an attempt was killed, and nobody knows what it took
        took = account.took
        account.comparison = {"said": round(told["said"], 1), "took": round(took, 1)}
        account.sentence = how_far_off(told["said"], took, at_least=bool(told["at_least"]))


def how_far_off(said: float, took: float, *, at_least: bool = False) -> str:
    """A sentence for the log."""
    off = 100 * (said - took) / max(took, 1e-9)
    least = "at least " if at_least else ""
    verdict = "exactly that" if abs(off) < 0.5 else f"{abs(off):.0f} % too {'much' if off > 0 else 'little'}"
    return f"took {human_seconds(took)} of processor time; the dry run said {least}{human_seconds(said)}, {verdict}"


def human_seconds(value: float) -> str:
    """Seconds, minutes or hours, whichever is readable."""
    if value < 120:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:,.1f} h"


def human_bytes(value: float) -> str:
    """Decimal units, as disks are sold."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if value >= 10 or unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def _path(command: str, arguments: Mapping[str, Any]) -> Path:
    asked = {name: str(value) for name, value in arguments.items() if name not in HARMLESS}
    text = json.dumps([command, os.getcwd(), asked], sort_keys=True)
    return cache_folder() / "forecasts" / f"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}.json"


def _write(path: Path, values: dict[str, Any]) -> None:
    atomic.write_text(path, json.dumps(values) + "\n")


def _read_dry_run(path: Path) -> dict[str, Any] | None:
    try:
        told = json.loads(path.read_text())
        return {
            "said": float(told["said"]),
            "at_least": bool(told["at_least"]),
            "took": float(told["took"]),
            "running": bool(told["running"]),
        }
    except (OSError, ValueError, TypeError, KeyError):
        return None
