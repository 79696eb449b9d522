"""Leaving in good order: SIGTERM and SIGINT ask a run to save and stop, all processes at the same step."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

import torch
from accelerate import Accelerator

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Catches the signals while a run lasts. The second one no longer waits for the save."""

    def __init__(self) -> None:
        self.signal: int = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():  # elsewhere Python takes no handlers
            self._previous = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number

    def agreed(self, accelerator: Accelerator) -> int:
        """The highest signal that any process has seen, or 0. All processes must ask at the same step."""
        if accelerator.num_processes == 1:
            return self.signal
        seen = accelerator.gather(torch.tensor([self.signal], device=accelerator.device))
        return int(seen.max())
