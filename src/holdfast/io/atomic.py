"""Atomic writes of files and folders: written under a temporary name, synced, renamed.

The order matters. Without the first fsync, a power cut after the rename can leave an empty file under the final name,
since file systems may write the directory before the data; without the fsync of the folder, the rename itself may be
lost.
"""

import contextlib
import glob
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

_HERE = re.sub(r"\W", "_", platform.node())


def write_text(path: Path, text: str) -> None:
    """Write or replace a text file."""
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path; the file written there replaces ``path`` if the block succeeds."""
    temporary = _temporary(path)
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)  # atomic on POSIX: readers see the old file or the new one, never a part
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def replace_unsynced(path: Path) -> Iterator[Path]:
    """As `replace_file`, but fast: for many files, whose content is checked when they are read.

    Temporary files of killed processes stay until `remove_leftovers`.
    """
    temporary = _temporary_name(path)
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(paths: Iterable[Path], *, seconds: float = 60) -> None:
    """Remove the temporary files among these: of dead processes on this machine, or old ones of any machine."""
    for path in paths:
        machine, _, process = path.name.removesuffix(".tmp").rpartition(".")[-1].rpartition("-")
        with contextlib.suppress(OSError):  # another process may remove it, too
            if (machine == _HERE and is_dead(process)) or time.time() - path.stat().st_mtime > seconds:
                path.unlink()


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder; it becomes ``path`` if the block succeeds and is removed otherwise.

    ``path`` must be new: a folder that is not empty cannot be replaced atomically.
    """
    temporary = _temporary(path)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for file in temporary.iterdir():
            _sync(file)
        _sync(temporary)
        os.rename(temporary, path)
        _sync(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def remove_on_failure(folder: Path, *, unless: Callable[[], bool]) -> Iterator[None]:
    """Remove a folder that a failed command has created, and its new, empty parents.

    Args:
        folder: the folder that the block creates; an existing one is left alone.
        unless: returns whether the folder holds something worth keeping.
    """
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        yield
    except Exception:
        if folder in new and not unless():
            shutil.rmtree(folder, ignore_errors=True)
            for place in new[1:]:
                with contextlib.suppress(OSError):  # not empty
                    place.rmdir()
        raise


def point(link: Path, target: str) -> None:
    """Create or replace a relative symbolic link atomically."""
    temporary = _temporary(link)
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    os.replace(temporary, link)


def _temporary(path: Path) -> Path:
    """Return a temporary name next to ``path`` that contains host and process; remove those of dead processes."""
    for left in path.parent.glob(f"{glob.escape(f'.{path.name}.{_HERE}-')}*.tmp"):
        if is_dead(left.name.removesuffix(".tmp").rpartition("-")[2]):
            with contextlib.suppress(OSError):
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
    return _temporary_name(path)


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{_HERE}-{os.getpid()}.tmp")


def is_dead(process: str) -> bool:
    """Whether no process of this id is alive on this machine; zombies count as dead."""
    if not process.isdigit() or os.name != "posix":  # on Windows, signal 0 is CTRL_C_EVENT and interrupts the process
        return False
    try:
        os.kill(int(process), 0)  # signal 0 only checks that the process exists
        status = Path("/proc", process, "stat").read_text(encoding="utf-8", errors="replace")
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # alive but of another user, or a system without /proc
        return False
    return status.rpartition(")")[2].split()[:1] == ["Z"]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
