"""Signal handling: SIGTERM ends a command as Ctrl-C does, and no process outlives its parent."""

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
    """SIGTERM as a kind of KeyboardInterrupt, so that code that handles Ctrl-C handles it; exit code 143, not 130."""


_received: list[type[KeyboardInterrupt]] = []  # interrupts that the running command has received


@contextlib.contextmanager
def handle_signals() -> Iterator[None]:
    """Turn SIGTERM into `Terminated` inside the block, unless another handler is installed.

    If a library turns the interrupt into its own error (matplotlib, in C++), it is raised again here;
    if a library swallows it, `unblock_signals` raises it again. Raised inside a callback of the garbage
    collector, where Python can only print it, it is not printed; `unblock_signals` raises it again, too.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        _received.append(Terminated if number == signal.SIGTERM else KeyboardInterrupt)
        raise _received[-1]

    def print_unraisable(unraisable: Any) -> None:
        if not (_received and issubclass(unraisable.exc_type, KeyboardInterrupt)):
            hook(unraisable)

    hook = sys.unraisablehook
    before: dict[int, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    main = threading.current_thread() is threading.main_thread()
    ours = [number for number, handler in before.items() if main and signal.getsignal(number) == handler]
    for number in ours:
        signal.signal(number, stop)
    sys.unraisablehook = print_unraisable
    try:
        yield
    except Exception as error:
        if _received:
            raise _received[-1] from error
        raise
    finally:
        sys.unraisablehook = hook
        for number in ours:
            signal.signal(number, before[number])
        if ours:  # a nested command leaves it to the outer one
            _received.clear()


def unblock_signals() -> None:
    """Raise a received interrupt that a library swallowed; called between steps of long work."""
    if _received:
        raise _received[-1]


def interrupted() -> bool:
    """Whether an interrupt was received that has not ended the command yet."""
    return bool(_received)


@contextlib.contextmanager
def exit_at_once() -> Iterator[None]:
    """Use the default signal handlers inside the block, for libraries that wait in C++, where ours do not run.

    The exit code is that of the signal, without a message; there must be nothing to save.
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
    """Turn the death of a DataLoader worker, which torch raises anywhere in the main process, into one sentence.

    If the main process is receiving a batch from the worker, the connection breaks first.
    """
    try:
        try:
            yield
        except (ConnectionError, EOFError) as error:
            frames = traceback.walk_tb(error.__traceback__)
            if not any("multiprocessing" in frame.f_code.co_filename for frame, _ in frames):
                raise
            time.sleep(1)  # torch's own error follows: catch it here, not in later code
            raise RuntimeError("DataLoader worker left in the middle of a batch") from error
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise HoldfastError(f"a worker process died, most likely because it ran out of memory; {way_on}") from error


@contextlib.contextmanager
def peer_deaths(processes: int, *, way_on: str) -> Iterator[None]:
    """Turn the death of another process of the group, which gloo or NCCL raise later, into one sentence."""
    try:
        yield
    except RuntimeError as error:
        if processes == 1 or not re.search("gloo|nccl|closed by peer|connection reset", str(error), re.IGNORECASE):
            raise
        raise HoldfastError(f"one of the {processes} processes has died; {way_on}") from error


def exit_with_parent() -> None:
    """In a multiprocessing child: send SIGTERM to itself as soon as the parent has ended for any reason."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_leave_after, args=(parent.sentinel,), daemon=True).start()


PATIENCE = 30  # seconds that a worker continues after SIGTERM


def exit_when_orphaned(*, patience: float = PATIENCE) -> None:
    """In a DataLoader worker: leave signals to the parent, and exit quietly if the parent dies.

    A signal to the whole process group must not end the workers before the parent has saved: after SIGTERM a
    worker continues for ``patience`` seconds and then exits, whatever it is doing. The thread that sends images
    would print a traceback if the parent dies meanwhile.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)  # works even while a library is busy in C
    threading.Thread(target=_leave_late, args=(reader, patience), daemon=True).start()
    sys.excepthook = _unless_orphaned


def _leave_late(reader: int, patience: float) -> None:
    while signal.SIGTERM not in os.read(reader, 64):
        pass
    time.sleep(patience)
    os._exit(0)  # with any other code, torch would raise in the parent


def _unless_orphaned(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    parent = multiprocessing.parent_process()
    if parent is None or not wait([parent.sentinel], timeout=1):  # its sockets close a moment before it ends
        sys.__excepthook__(kind, error, trace)


def _leave_after(sentinel: int) -> None:
    wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
