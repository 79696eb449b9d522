"""Leaving in good order: SIGTERM ends a command as Ctrl-C does, and no process outlives the one that started it."""

import contextlib
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from multiprocessing.connection import wait
from types import FrameType, TracebackType
from typing import Any

from holdfast.errors import HoldfastError


class Terminated(KeyboardInterrupt):
    """SIGTERM: whoever handles Ctrl-C handles it likewise; the exit code is 143 instead of 130."""


_asked: list[type[KeyboardInterrupt]] = []  # what has been asked of the command that runs now


@contextlib.contextmanager
def handle_signals() -> Iterator[None]:
    """Turn SIGTERM into :class:`Terminated` while the block lasts, unless somebody else listens already.

    Where a library turns the interruption into an error of its own (matplotlib, in C++), it becomes one again here;
    where one swallows it, :func:`unblock_signals` raises it again.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        _asked.append(Terminated if number == signal.SIGTERM else KeyboardInterrupt)
        raise _asked[-1]

    before: dict[int, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    main = threading.current_thread() is threading.main_thread()
    ours = [number for number, handler in before.items() if main and signal.getsignal(number) == handler]
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    except Exception as error:
        if _asked:
            raise _asked[-1] from error
        raise
    finally:
        for number in ours:
            signal.signal(number, before[number])
        if ours:  # a command within a command leaves it to the outer one
            _asked.clear()


def unblock_signals() -> None:
    """Between two steps of long work: leave, if that was asked for and somebody in between did not pass it on."""
    if _asked:
        raise _asked[-1]


@contextlib.contextmanager
def exit_at_once() -> Iterator[None]:
    """While a library waits in C++, where no handler of ours is heard: a signal ends the process as it ends any other.

    The exit code is that of the signal; there is no sentence, and there must be nothing to save.
    """
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT) if main}
    for number in before:
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def worker_deaths(*, way_on: str) -> Iterator[None]:
    """The death of a data loader's worker, which torch raises wherever the main process is just then, as a sentence.

    If it is just taking over what the worker had ready, the connection breaks first.
    """
    try:
        try:
            yield
        except (ConnectionError, EOFError) as error:
            frames = traceback.walk_tb(error.__traceback__)
            if not any("multiprocessing" in frame.f_code.co_filename for frame, _ in frames):
                raise
            time.sleep(1)  # torch's own error is due: let it come here rather than to whatever we do next
            raise RuntimeError("DataLoader worker left in the middle of a batch") from error
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise HoldfastError(f"a worker died, most likely for want of memory; {way_on}") from error


@contextlib.contextmanager
def peer_deaths(processes: int, *, way_on: str) -> Iterator[None]:
    """The death of another process of a group, which gloo and NCCL raise at the next meeting, as a sentence."""
    try:
        yield
    except RuntimeError as error:
        if processes == 1 or not re.search("gloo|nccl|closed by peer|connection reset", str(error), re.IGNORECASE):
            raise
        raise HoldfastError(f"another process of the {processes} is gone; {way_on}") from error


def exit_with_parent() -> None:
    """In a child process of multiprocessing: send SIGTERM to oneself as soon as the parent is gone, however it went."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_leave_after, args=(parent.sentinel,), daemon=True).start()


PATIENCE = 30  # seconds that a worker goes on after SIGTERM


def exit_when_orphaned(*, patience: float = PATIENCE) -> None:
    """In a worker of a data loader: signals are the parent's business, and nobody wants to read how its death is felt.

    A signal to the whole process group must not take the workers away before the parent has saved: after SIGTERM a
    worker goes on for ``patience`` seconds, and leaves then, whatever it is stuck in. The thread that hands over images
    prints a traceback if the parent dies just then.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)  # heard even while a library is busy in C
    threading.Thread(target=_leave_late, args=(told, patience), daemon=True).start()
    sys.excepthook = _unless_orphaned


def _leave_late(told: int, patience: float) -> None:
    while signal.SIGTERM not in os.read(told, 64):
        pass
    time.sleep(patience)
    os._exit(0)  # with any other code, torch would raise in the parent


def _unless_orphaned(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    parent = multiprocessing.parent_process()
    if parent is None or not wait([parent.sentinel], timeout=1):  # its sockets close a moment before it has gone
        sys.__excepthook__(kind, error, trace)


def _leave_after(sentinel: int) -> None:
    wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
