"""Folders of tasks on other machines: one that all nodes share, or a temporary one whose files are sent home."""

import platform
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from holdfast.errors import HoldfastError
from holdfast.io import atomic

Files = dict[str, bytes]  # contents by path within a folder


@contextmanager
def task_folder(shared: Path | None, files: Mapping[str, bytes] | None = None) -> Iterator[Path]:
    """The folder that all nodes share, or for None a temporary one with these files."""
    if shared is not None:
        check_shared(shared)
        yield shared
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-") as name:
        write_files(Path(name), files or {})
        yield Path(name)


def check_shared(folder: Path, *, there: Callable[[Path], bool] = Path.is_dir) -> None:
    """Raise an error if a worker does not see the shared folder."""
    if not there(folder):
        raise HoldfastError(
            f"{str(folder)!r} does not exist on {platform.node()}: --out must be a folder that all nodes share, "
            "or use --gather to send the results to this machine"
        )


def read_files(folder: Path, paths: Iterable[Path]) -> Files:
    """Contents of these files, by path within the folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths if path.is_file()}


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files into the folder, each renamed into place."""
    for name, content in files.items():
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise HoldfastError(f"a worker must send files within its folder, got {name!r}")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replace_unsynced(path) as temporary:
            temporary.write_bytes(content)
