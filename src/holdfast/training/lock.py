"""One process trains in a folder at a time; whoever dies, however, no longer holds the lock."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import HoldfastError

try:
    import fcntl
except ImportError:  # Windows: two runs in one folder are the user's business there
    fcntl = None  # type: ignore[assignment]

_held: set[int] = set()


def check_free(folder: Path) -> None:
    """Refuse a folder that another process trains in."""
    if folder.is_dir():
        with lock_folder(folder):
            pass


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the folder itself locked (flock), so that no file is left; file systems that cannot do so are not locked."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    _held.add(descriptor)
    try:
        _lock(descriptor, folder)
        yield
    finally:
        _held.discard(descriptor)
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise HoldfastError(
            f"{str(folder)!r} is being trained by another process; wait for it or choose another --out"
        ) from error
    except OSError:  # NFS without locks
        return


def _let_go() -> None:
    """In forked workers: a lock is held as long as anybody has it open, and they may outlive their parent a little."""
    for descriptor in _held:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
