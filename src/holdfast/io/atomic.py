"""Files and folders that are either complete or not there: written under a temporary name, synced, renamed."""

import contextlib
import glob
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

_HERE = re.sub(r"\W", "_", platform.node())


def write_text(path: Path, text: str) -> None:
    """Write or replace a text file."""
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A temporary name to write a file under; it takes the place of ``path`` when the block ends well."""
    temporary = _temporary(path)
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder to fill; it becomes ``path`` when the block ends well, and vanishes when it does not.

    ``path`` must be new: a folder that holds something cannot be replaced in one move.
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
    """Remove what a refused command has begun: the folder, and folders above that are empty, as far as they are new.

    Args:
        folder: what the block makes; one that is there already is left alone.
        unless: whether it holds something worth keeping after all.
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
    """Make a relative symbolic link, or turn an existing one, in one move."""
    temporary = _temporary(link)
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    os.replace(temporary, link)


def _temporary(path: Path) -> Path:
    """A name beside ``path`` that tells who writes; what processes of this machine left there when they died goes."""
    for left in path.parent.glob(f"{glob.escape(f'.{path.name}.{_HERE}-')}*.tmp"):
        if is_dead(left.name.removesuffix(".tmp").rpartition("-")[2]):
            with contextlib.suppress(OSError):
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
    return path.with_name(f".{path.name}.{_HERE}-{os.getpid()}.tmp")


def is_dead(process: str) -> bool:
    """Whether no process of this number writes any more on this machine; one that ended and was not buried is dead."""
    if not process.isdigit() or os.name != "posix":  # elsewhere os.kill has no harmless signal
        return False
    try:
        os.kill(int(process), 0)  # asks, does not kill
        status = Path("/proc", process, "stat").read_text(encoding="utf-8", errors="replace")
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # alive, somebody else's; or a machine without /proc
        return False
    return status.rpartition(")")[2].split()[:1] == ["Z"]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
