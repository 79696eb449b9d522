"""Commands in processes of their own that can be killed: forked after the imports, which cost most."""

import contextlib
import logging
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Command:
    """One command in its own session, so that whatever it starts can be found."""

    pid: int
    output: Path
    code: int | None = None

    def running(self) -> bool:
        """Whether the command has not ended yet."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is None

    def wait(self, seconds: float = 120) -> int:
        """The exit code; negative for a signal."""
        if not until(lambda: not self.running(), seconds):
            raise AssertionError(f"still running after {seconds} s; it said: {self.told()}")
        assert self.code is not None
        return self.code

    def told(self) -> str:
        """Everything that it printed."""
        return self.output.read_text(encoding="utf-8", errors="replace")

    def end(self) -> None:
        """Kill whatever is left of it."""
        for pid in [*self.family(), *([self.pid] if self.running() else [])]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def __enter__(self) -> "Command":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def family(self) -> list[int]:
        """The processes of its session that are alive, without itself."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.pid:
                fields = _status(entry)
                if fields and int(fields[3]) == self.pid and fields[0] != "Z":
                    found.append(int(entry.name))
        return found


SLOWEST_REFUSAL = 10  # seconds beyond the start
LONGEST = 120  # seconds of a small command, on a machine that others use too; then it hangs


@dataclass(frozen=True)
class Said:
    """What became of a command that was watched: its exit code (None if it had to be killed), and what it printed."""

    code: int | None
    text: str
    seconds: float
    processor: float
    numbers: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def slow(self) -> bool:
        """Whether it took longer than a refusal may; on a busy machine the processor's time tells."""
        return min(self.seconds, max(self.processor, self.seconds / 4)) > SLOWEST_REFUSAL


def said_by(work: Callable[[], int], *, folder: Path, seconds: float = LONGEST) -> Said:
    """Run a function in a child process, and end it with all its children if it hangs."""
    output = folder.parent / f".said-{os.getpid()}"
    begin, before = time.monotonic(), os.times()
    with fork(work, output=output, folder=folder) as command:
        ended = until(lambda: not command.running(), seconds)
        took, after = time.monotonic() - begin, os.times()
        processor = after.children_user + after.children_system - before.children_user - before.children_system
        text = command.told()
    output.unlink(missing_ok=True)
    return Said(command.code if ended else None, text, took, processor)


def start(
    argv: Sequence[str], *, output: Path, errors: Path | None = None, folder: Path | None = None, **environment: str
) -> Command:
    """Start ``holdfast ARGV``."""
    import torch

    from holdfast.cli.main import main

    torch.set_num_threads(1)  # a forked process cannot use the threads of the one it comes from
    return fork(lambda: main(list(argv)), output=output, errors=errors, folder=folder, **environment)


def run_group(argv: Sequence[str], *, folder: Path) -> list[tuple[int, str]]:
    """Run ``holdfast ARGV`` as torchrun would, in a group of two processes: how each ended, and what it printed."""
    from holdfast.cli.main import main

    return fork_group(lambda: main(list(argv)), folder=folder)


def fork_group(work: Callable[[], int], *, folder: Path, count: int = 2, seconds: float = 300) -> list[tuple[int, str]]:
    """Run a function in a group of processes that know of each other as under torchrun."""
    import torch

    torch.set_num_threads(1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    group = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(
                fork(work, output=folder / f"told{rank}", **group, RANK=str(rank), LOCAL_RANK=str(rank))
            )
            for rank in range(count)
        ]
        return [(command.wait(seconds), command.told()) for command in started]


def fork(
    work: Callable[[], int],
    *,
    output: Path,
    errors: Path | None = None,
    folder: Path | None = None,
    **environment: str,
) -> Command:
    """Run a function in a child process and leave with its result."""
    sys.stdout.flush()
    sys.stderr.flush()
    output.touch()  # it may be killed before it opens the file
    pid = os.fork()
    if pid:
        return Command(pid, output)
    code = 70
    try:
        os.setsid()
        for number, path in ((1, output), (2, errors or output)):
            mode = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if number == 1 or errors else 0)
            os.dup2(os.open(path, mode, 0o644), number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
        logging.getLogger().handlers.clear()  # pytest's; warnings go to standard error
        os.environ.update(environment)
        os.chdir(folder or Path.cwd())
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def until(true: Callable[[], bool], seconds: float) -> bool:
    """Wait for something to become true; whether it did."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def _status(entry: Path) -> list[str] | None:
    """State, parent, group, session … as the kernel counts them."""
    try:
        return (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
