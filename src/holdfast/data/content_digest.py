"""Content digest of a data set's files: equal for copies of the set, different if an image changed.

All files are read if they total 256 MB or less, else 64 spread over the set; the text of the digest says which. A
cache keyed by the files' times and sizes saves reading them again; neither enters the digest.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.data.subsets import Joined, Subset
from holdfast.io import atomic
from holdfast.io.folder_index import SETTLED, cache_folder

MOST = 256 * 2**20  # bytes up to which all files are read
SAMPLE = 64  # files read of larger sets
WORTH = 2**23  # bytes from which the digest is cached


def content_of_files(source: Any) -> str:
    """Digest of the files that a source reads, with their number in words; empty if it reads none."""
    files = list(_files(source, np.arange(len(source))))
    sizes = [_size(file) for file in files]
    if not any(size >= 0 for size in sizes):
        return ""
    if sum(max(0, size) for size in sizes) <= MOST:
        return f"all {len(files)} files: {_digest(files)}"
    return f"a sample of {SAMPLE} of {len(files)} files: {_digest(spread(files, SAMPLE), sizes)}"


def content_of_sample(sources: Sequence[Any]) -> str:
    """Digest of some files of every source of a stored set."""
    each = max(1, SAMPLE // max(1, len(sources)))
    files = [file for source in sources for file in _files(source, spread(np.arange(len(source)), each))]
    return f"a sample of {len(files)} files: {_digest(files)}" if any(map(os.path.isfile, files)) else ""


def spread(things: Any, count: int) -> Any:
    """Choose ``count`` evenly spaced items of a sequence, from the first to the last."""
    places = np.linspace(0, max(0, len(things) - 1), min(count, len(things))).astype(int)
    return things[places] if isinstance(things, np.ndarray) else [things[place] for place in places]


def _files(source: Any, indices: np.ndarray) -> Iterator[Path]:
    """Yield the files of some images, in order."""
    if isinstance(source, Subset):
        yield from _files(source.source, source.indices[indices])
    elif isinstance(source, Joined):
        start = 0
        for part in source.parts:
            yield from _files(part, indices[(indices >= start) & (indices < start + len(part))] - start)
            start += len(part)
    elif callable(getattr(source, "file", None)):
        yield from (source.file(int(index)) for index in indices)
    elif isinstance(getattr(source, "root", None), Path):
        yield from (source.root / source.id(int(index)) for index in indices)


def _digest(files: Sequence[Path], sizes: Sequence[int] = ()) -> str:
    remembered = _cache_path(files, sizes)
    if remembered is not None:
        with suppress(OSError, ValueError, TypeError, KeyError):
            return str(json.loads(remembered.read_text(encoding="utf-8"))["digest"])
    digest = hashlib.blake2b(json.dumps(list(sizes)).encode(), digest_size=16)
    for file in files:
        digest.update(_file_digest(file))
    if remembered is not None:
        with suppress(OSError):  # the cache is optional: a full or read-only home must not stop an evaluation
            remembered.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_text(remembered, json.dumps({"digest": digest.hexdigest()}))
    return digest.hexdigest()


def _file_digest(path: Path) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    try:
        with path.open("rb") as stream:
            while block := stream.read(2**20):
                digest.update(block)
    except OSError:  # an unreadable image is excluded and reported during the evaluation
        return b"unreadable"
    return digest.digest()


def _cache_path(files: Sequence[Path], sizes: Sequence[int]) -> Path | None:
    """Cache file of the digest; None if the files are small, or changed so recently that their times are unreliable."""
    key, total = hashlib.blake2b(json.dumps([1, list(sizes)]).encode(), digest_size=16), 0
    for file in files:
        try:
            state = os.stat(file)
        except OSError:
            return None
        # ctime, too: unlike mtime it cannot be set back
        if max(state.st_mtime_ns, state.st_ctime_ns) > (time.time() - SETTLED) * 1e9:
            return None
        key.update(repr((state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)).encode())
        total += state.st_size
    return cache_folder() / "contents" / f"{key.hexdigest()}.json" if total >= WORTH else None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else -1
    except OSError:
        return -1
