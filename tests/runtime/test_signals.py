"""A worker of a data loader speaks up while its parent lives, and feels its death in silence."""

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from holdfast.runtime.signals import Terminated, exit_when_orphaned, handle_signals, unblock_signals


def worker(output: Path, ready: Path, go: Path) -> None:
    sys.stderr = output.open("w", buffering=1)
    sys.__stderr__ = sys.stderr
    exit_when_orphaned()
    ready.write_text(str(os.getpid()))
    while not go.exists():
        time.sleep(0.01)
    try:
        raise ConnectionResetError("Connection reset by peer")
    except ConnectionResetError:
        sys.excepthook(*sys.exc_info())  # what the thread of multiprocessing that hands over images does
    sys.stderr.close()
    output.with_suffix(".done").touch()


def parent(*paths: Path) -> None:
    multiprocessing.get_context("fork").Process(target=worker, args=paths).start()
    time.sleep(60)


def appears(path: Path) -> bool:
    end = time.monotonic() + 30
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.01)
    return path.exists()


def obedient(ready: Path) -> None:
    exit_when_orphaned(patience=0.5)
    ready.touch()
    time.sleep(60)


def test_a_worker_outlives_a_signal_only_for_a_while(tmp_path):
    """Long enough for the parent to save, if both were asked; then it leaves, whatever it is stuck in."""
    process = multiprocessing.get_context("fork").Process(target=obedient, args=(tmp_path / "ready",))
    process.start()
    try:
        assert appears(tmp_path / "ready")
        os.kill(process.pid, signal.SIGTERM)
        process.join(0.2)
        assert process.is_alive()
        process.join(10)
        assert process.exitcode == 0  # any other code is a failure to the data loader
    finally:
        process.kill()
        process.join()


@pytest.mark.parametrize("killed", [True, False])
def test_an_orphan_prints_no_traceback(killed, tmp_path):
    output, ready, go = (tmp_path / name for name in ("output", "ready", "go"))
    middle = multiprocessing.get_context("fork").Process(target=parent, args=(output, ready, go))
    middle.start()
    try:
        assert appears(ready)
        if killed:
            os.kill(middle.pid, signal.SIGKILL)
        go.touch()
        assert appears(output.with_suffix(".done"))
        assert ("ConnectionResetError" in output.read_text()) is not killed
    finally:
        middle.kill()
        middle.join()


class _Terminates:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_inside_the_garbage_collector_prints_nothing_and_is_raised_later(capsys):
    reached = []

    def command():
        with handle_signals():
            _Terminates()  # freed at once; Python cannot raise out of __del__
            reached.append(True)
            unblock_signals()

    with pytest.raises(Terminated):
        command()
    assert reached
    assert capsys.readouterr().err == ""
