"""Logging of a run: ``log.jsonl``, trackers, and a progress bar with loss parts, throughput and time left."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.io import atomic
from holdfast.runtime.progress import ProgressLine


class Meter:
    """Running sums of loss parts, kept on the device until they are read."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._restart()

    def _restart(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._steps, self._since = 0, time.perf_counter()

    def add(self, parts: Mapping[str, Tensor]) -> None:
        """Add the loss parts of one step."""
        for name, value in parts.items():
            self._sums[name] = self._sums[name] + value.detach() if name in self._sums else value.detach().clone()
        self._steps += 1

    def check_finite(self, *, step: int, folder: Path) -> None:
        """Raise an error if any loss since the last reading was not finite, on any process."""
        if not self._sums:
            return
        total = self._sums["loss"].reshape(1).float()
        total = self._accelerator.gather(total) if self._accelerator.num_processes > 1 else total
        if not torch.isfinite(total).all():
            raise HoldfastError(
                f"the loss is not finite (detected at step {step}); the last good checkpoint is kept in "
                f"{str(folder)!r}; a lower optimizer.lr or an optimizer.clip_grad usually helps"
            )

    def read(self, *, images_per_step: int) -> dict[str, float]:
        """Means since the last reading, over all processes, and images per second; resets the sums."""
        means = {name: value / self._steps for name, value in self._sums.items()}
        if self._accelerator.num_processes > 1 and means:
            stacked = self._accelerator.reduce(torch.stack([v.float() for v in means.values()]), reduction="mean")
            means = dict(zip(means, stacked, strict=True))
        speed = images_per_step * self._steps / (time.perf_counter() - self._since)
        values = {name: float(value) for name, value in means.items()} | {"images_per_s": round(speed, 1)}
        self._restart()
        return values


class TrainingLogger:
    """Writes the log, trackers and progress bar, on the main process only."""

    def __init__(
        self, accelerator: Accelerator, folder: Path, *, steps: int, show: bool | None, header: str = ""
    ) -> None:
        self._accelerator, self._path = accelerator, folder / "log.jsonl"
        self._main = accelerator.is_main_process
        self._progress = ProgressLine(
            "training", total=steps, unit="steps", show=show if self._main else False, header=header
        )

    def __enter__(self) -> "TrainingLogger":
        self._progress.__enter__()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._progress.__exit__(kind, error, traceback)

    def continue_from(self, step: int) -> None:
        """Remove lines written after the checkpoint that the run resumes from."""
        if self._main and self._path.exists():
            entries = [entry for entry in read_log(self._path) if entry["step"] <= step and entry["event"] != "end"]
            atomic.write_text(self._path, "".join(f"{json.dumps(entry)}\n" for entry in entries))
        self._progress.begin_at(step)

    def lines(self) -> list[dict[str, Any]]:
        """The whole log, on the main process."""
        return read_log(self._path) if self._main else []

    def advance(self, epoch: int) -> None:
        """Advance the progress bar by one step."""
        self._progress.advance(name=f"epoch {epoch}")

    def say(self, sentence: str) -> None:
        """Print a line above the progress bar."""
        self._progress.say(sentence)

    def warn(self, sentence: str) -> None:
        """Print a line even if progress is not shown."""
        self._progress.warn(sentence)

    def write(self, event: str, *, step: int, epoch: int, **values: Any) -> None:
        """Write a line of the log; its numbers also go to the trackers and to the bar."""
        if not self._main:
            return
        append_log(self._path, event, step=step, epoch=epoch, **values)
        numbers = {key: value for key, value in values.items() if isinstance(value, int | float)}
        if self._accelerator.trackers:
            self._accelerator.log({f"{event}/{key}": value for key, value in numbers.items()}, step=step)
        if event == "step":
            ordered = sorted(numbers, key=lambda key: key != "loss")  # a narrow terminal drops the last ones first
            self._progress.figures([f"{key} {numbers[key]:.4g}" for key in ordered])


def append_log(path: Path, event: str, *, step: int, **values: Any) -> None:
    """Append a line to a log; raises a one-line error if the disk is full."""
    try:
        with path.open("a", encoding="utf-8") as log:
            log.write(json.dumps({"event": event, "step": step, **values}) + "\n")
    except OSError as error:
        raise HoldfastError(f"{str(path)!r} cannot be written ({error.strerror}) at step {step}") from error


def read_log(path: Path) -> list[dict[str, Any]]:
    """The entries of a log, without incomplete or damaged lines."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise HoldfastError(f"{str(path)!r} cannot be read ({error.strerror})") from error
    return [entry for line in lines if (entry := _entry(line)) is not None]


def _entry(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    whole = isinstance(entry, dict) and isinstance(entry.get("step"), int) and isinstance(entry.get("event"), str)
    return entry if whole else None
