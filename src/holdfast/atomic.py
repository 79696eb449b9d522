"""Files and folders that are either complete or not there: written under a temporary name, synced, renamed."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write or replace a text file."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name to write a file under; it takes the place of ``path`` when the block ends well."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
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
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
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
def leaving_nothing(folder: Path, *, unless: Callable[[], bool]) -> Iterator[None]:
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
    temporary = link.with_name(f".{link.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    os.replace(temporary, link)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
