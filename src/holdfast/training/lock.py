"""Lock of a run folder: one process trains in it at a time; the lock ends with its process."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import HoldfastError

try:
    import fcntl
except ImportError:  # Windows, where folders are not locked
    fcntl = None  # type: ignore[assignment]

_held: set[int] = set()


def check_free(folder: Path) -> None:
    """Raise an error for a folder that another process trains in."""
    if folder.is_dir():
        with lock_folder(folder):
            pass


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock the folder itself (flock), so that no lock file remains; without effect where flock is not supported."""
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
            f"another process is training in {str(folder)!r}; wait for it or choose another --out"
        ) from error
    except OSError:  # NFS without locks
        return


def _let_go() -> None:
    """Release the lock in forked workers: they may outlive their parent, and a lock lasts while it is open anywhere."""
    for descriptor in _held:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
