"""Index of the image files below a folder, compact and cached: for folders of a million files.

Names are stored back to back in one array, which forked workers share. The index of a large folder is cached with the
modification time of each directory: adding, removing or renaming a file changes its directory, so a cached index is
valid only if no directory has changed since. File contents are never cached.
"""

import hashlib
import json
import logging
import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import overload

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from holdfast.io import atomic

logger = logging.getLogger(__name__)

LARGE = 20_000  # number of files from which an index is cached
SETTLED = 2.0  # seconds until a directory's mtime is trusted: on coarse clocks, a later change may keep the same mtime
FORMAT = 1


class FileNames(Sequence[str]):
    """A compact, immutable sequence of file names: one byte array and offsets."""

    def __init__(self, text: np.ndarray, ends: np.ndarray) -> None:
        self.text, self.ends = text, ends

    @classmethod
    def of(cls, names: Sequence[str]) -> "FileNames":
        """Build it from any sequence of names."""
        parts = [os.fsencode(name) for name in names]
        text = np.frombuffer(b"".join(parts), dtype=np.uint8)
        return cls(text, np.cumsum([0, *map(len, parts)], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        begin, end = self.ends[index % len(self)], self.ends[index % len(self) + 1]
        return os.fsdecode(self.text[begin:end].tobytes())

    def __iter__(self) -> Iterator[str]:
        text, ends = self.text.tobytes(), self.ends.tolist()
        return (os.fsdecode(text[begin:end]) for begin, end in pairwise(ends))


@dataclass(frozen=True)
class FolderIndex:
    """The files with given suffixes below a folder, sorted by name within each directory.

    Attributes:
        names: relative paths of the files, with forward slashes.
        directories: relative paths of all directories; the folder itself is ``""``.
        changed: modification time of each directory, in nanoseconds.
    """

    names: FileNames
    directories: FileNames
    changed: np.ndarray


def index_folder(root: Path, suffixes: Collection[str], *, links: bool) -> FolderIndex:
    """List every file below ``root`` with one of the suffixes, from the cache if it is still valid.

    Args:
        root: the folder; raises OSError if it cannot be read.
        suffixes: lower-case suffixes with the dot.
        links: follow links to directories; each directory is read once per class, and no parent is followed.
    """
    path = _cache_path(root, suffixes, links)
    cached = _read_cache(root, path)
    if cached is not None:
        return cached
    begin = time.time()
    found = _walk_folder(root, frozenset(suffixes), links)
    if len(found.names) >= LARGE and int(found.changed.max()) < (begin - SETTLED) * 1e9:
        _write_cache(path, found)
    return found


def _walk_folder(root: Path, suffixes: frozenset[str], links: bool) -> FolderIndex:
    """Walk depth first in sorted order, the files of a directory before its subdirectories."""
    names: list[bytes] = []
    directories: list[str] = []
    changed: list[int] = []
    above = {_place(os.stat(folder)) for folder in (root.resolve(), *root.resolve().parents)}
    seen: set[tuple[int, int]] = set()
    waiting = [""]
    while waiting:
        below = waiting.pop()
        place = os.path.join(root, below) if below else str(root)
        state = os.stat(place)
        if "/" not in below:  # two classes may link to the same directory
            seen = set(above) if below else set()
        if _place(state) in seen:
            continue
        seen.add(_place(state))
        try:
            files, folders = _read_directory(place, suffixes, links)
        except OSError:
            if not below:
                raise
            continue  # like os.walk: skip subdirectories without read permission
        prefix = f"{below}/" if below else ""
        names += [os.fsencode(prefix + file) for file in sorted(files)]
        waiting += [prefix + folder for folder in sorted(folders, reverse=True)]
        directories.append(below)
        changed.append(state.st_mtime_ns)
    ends = np.cumsum(np.fromiter(map(len, [b"", *names]), dtype=np.int64, count=len(names) + 1))
    text = np.frombuffer(b"".join(names), dtype=np.uint8)
    return FolderIndex(FileNames(text, ends), FileNames.of(directories), np.array(changed, dtype=np.int64))


def _read_directory(place: str, suffixes: frozenset[str], links: bool) -> tuple[list[str], list[str]]:
    files, folders = [], []
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=links):
                folders.append(entry.name)
            elif os.path.splitext(entry.name)[1].lower() in suffixes:
                files.append(entry.name)
    return files, folders


def _place(state: os.stat_result) -> tuple[int, int]:
    return state.st_dev, state.st_ino


def _cache_path(root: Path, suffixes: Collection[str], links: bool) -> Path:
    key = json.dumps([FORMAT, str(root.resolve()), sorted(suffixes), links])
    name = hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
    return cache_folder() / "folders" / f"{name}.safetensors"


def _write_cache(path: Path, found: FolderIndex) -> None:
    arrays = {
        "text": found.names.text,
        "ends": found.names.ends,
        "directories": found.directories.text,
        "directory_ends": found.directories.ends,
        "changed": found.changed,
    }
    with suppress(OSError):  # the cache is optional: a full or read-only home must not stop the command
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replace_file(path) as unfinished:
            unfinished.write_bytes(save(arrays))


def _read_cache(root: Path, path: Path) -> FolderIndex | None:
    """Read the cached index; None unless every directory is unchanged."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        names = FileNames(arrays["text"], arrays["ends"])
        found = FolderIndex(names, FileNames(arrays["directories"], arrays["directory_ends"]), arrays["changed"])
        now = [os.stat(os.path.join(root, below) if below else root).st_mtime_ns for below in found.directories]
    except (OSError, SafetensorError, KeyError, ValueError, TypeError):
        return None
    return found if np.array_equal(np.array(now, dtype=np.int64), found.changed) else None


def cache_folder() -> Path:
    """Return ``$HOLDFAST_CACHE``, else ``holdfast`` in the user's cache folder."""
    if own := os.environ.get("HOLDFAST_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "holdfast"
