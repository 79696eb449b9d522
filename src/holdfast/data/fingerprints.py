"""Fingerprints of data and settings, which keep records of different evaluations apart."""

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast._version import __version__
from holdfast.data.source import ArraySource, UnreadableImage
from holdfast.data.subsets import Joined, Subset

# libraries that turn files into pixels and pixels into logits
LIBRARIES = ("torch", "timm", "numpy", "scipy", "pillow", "opencv")
SAMPLED = 16  # images whose pixels are hashed if the source can only decode them one by one


def data_fingerprint(ids: Sequence[str], targets: np.ndarray, *, content: str) -> str:
    """Digest of the image ids, the targets and the `content_fingerprint` of a data set."""
    digest = _digest()
    digest.update("\0".join([*ids, content]).encode("utf-8", "surrogateescape"))
    digest.update(np.ascontiguousarray(targets).tobytes())
    return digest.hexdigest()


def content_fingerprint(source: Any, *, sample: int | None = None) -> str:
    """Digest of a source's content: all bytes of arrays in memory, the sizes of files, else a few images.

    ``sample`` limits it to about that many images, for sets of many sources.
    """
    digest = _digest()
    digest.update("\0".join(source.classes).encode("utf-8", "surrogateescape"))
    step = 1 if sample is None else max(1, len(source) // sample)
    _add_content(digest, source, np.arange(0, len(source), step))
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Versions of Holdfast and of the libraries that it computes with."""
    return {"holdfast": __version__, **{name: _version(name) for name in LIBRARIES}}


def fingerprint(values: Mapping[str, Any]) -> str:
    """Digest of plain data as sorted JSON."""
    digest = _digest()
    digest.update(json.dumps(values, sort_keys=True).encode())
    return digest.hexdigest()


def _add_content(digest: Any, source: Any, indices: np.ndarray) -> None:
    if isinstance(source, Subset):
        _add_content(digest, source.source, source.indices[indices])
    elif isinstance(source, Joined):
        start = 0
        for part in source.parts:
            _add_content(digest, part, indices[(indices >= start) & (indices < start + len(part))] - start)
            start += len(part)
    elif isinstance(source, ArraySource) and not isinstance(source.images, np.memmap):
        digest.update(np.ascontiguousarray(source.images[indices]).tobytes())
    elif isinstance(getattr(source, "root", None), Path):
        digest.update(json.dumps([_size(source.root / source.id(int(index))) for index in indices]).encode())
    elif hasattr(source, "content"):
        digest.update(json.dumps([source.content(int(index)) for index in indices]).encode())
    elif hasattr(source, "image"):
        for index in indices[:: max(1, len(indices) // SAMPLED)]:
            digest.update(_pixels(source, int(index)))


def _pixels(source: Any, index: int) -> bytes:
    try:
        return source.image(index).tobytes()
    except UnreadableImage as error:
        return str(error).encode("utf-8", "surrogateescape")


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _version(library: str) -> str:
    if library == "opencv":
        import cv2

        return cv2.__version__
    return importlib.metadata.version(library)


def _digest() -> Any:
    return hashlib.blake2b(digest_size=16)
