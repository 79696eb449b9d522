"""Data sets in one ``.npz`` file: ``x`` (uint8, N×H×W×3 or N×H×W), ``y`` (N labels), optionally ``classes``."""

import zipfile
from pathlib import Path

import numpy as np

from holdfast.data.source import ArraySource
from holdfast.errors import HoldfastError

MAX_CLASSES = 100_000


def open_npz(rest: str, *, split: str) -> ArraySource:
    """Open ``npz:FILE``; ``split`` is ignored, so name another file for validation."""
    path = Path(rest)
    arrays = _read_npz(path)
    for key in ("x", "y"):
        if key not in arrays:
            held = ", ".join(sorted(arrays)) or "nothing"
            raise HoldfastError(f"npz:{path} must hold the arrays x and y, got {held}")
    images, targets = arrays["x"], _labels(arrays["y"], path=path)
    if images.ndim == 3:
        images = np.repeat(images[..., None], 3, axis=-1)
    _check_images(images, targets, path=path)
    classes = _class_names(arrays.get("classes"), targets, path=path)
    return ArraySource(path.stem, images, targets, classes, np.arange(len(targets)))


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            _check_bomb(file.zip, path=path)
            return {key: file[key] for key in file.files}
    except HoldfastError:
        raise
    except Exception as error:  # a broken file can raise anything: BadZipFile, zlib.error, KeyError, MemoryError …
        reason = getattr(error, "strerror", None) or "not a readable .npz file without pickles"
        raise HoldfastError(f"npz:{path} cannot be opened ({reason})") from error


def _check_bomb(file: zipfile.ZipFile, *, path: Path) -> None:
    # deflate reaches 1000:1 on zeros, images hardly 10:1; refuse before numpy allocates gigabytes
    entries = file.infolist()
    packed, unpacked = sum(entry.compress_size for entry in entries), sum(entry.file_size for entry in entries)
    if unpacked > 2**30 and unpacked > 200 * packed:
        raise HoldfastError(f"npz:{path} must hold images, but {packed} bytes would decompress to {unpacked >> 30} GiB")


def _labels(labels: np.ndarray, *, path: Path) -> np.ndarray:
    if labels.dtype.kind not in "iu":
        raise HoldfastError(f"y of npz:{path} must hold whole numbers, got {labels.dtype}")
    if labels.size and int(labels.max()) >= MAX_CLASSES:
        raise HoldfastError(f"y of npz:{path} must count classes from 0 to {MAX_CLASSES - 1}, got {labels.max()}")
    return labels.astype(np.int64).reshape(-1)


def _check_images(images: np.ndarray, targets: np.ndarray, *, path: Path) -> None:
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3:
        raise HoldfastError(
            f"x of npz:{path} must be uint8 of shape (N, H, W, 3) or (N, H, W), got {images.dtype} {images.shape}"
        )
    if len(images) and 0 in images.shape:
        raise HoldfastError(f"x of npz:{path} must hold images of at least one pixel, got shape {images.shape}")
    if len(images) != len(targets):
        raise HoldfastError(f"x and y of npz:{path} must have the same length, got {len(images)} and {len(targets)}")


def _class_names(names: np.ndarray | None, targets: np.ndarray, *, path: Path) -> tuple[str, ...]:
    highest = int(targets.max(initial=-1))
    if int(targets.min(initial=0)) < 0:
        raise HoldfastError(f"y of npz:{path} must count classes from 0, got {int(targets.min())}")
    if names is not None and names.ndim != 1:
        raise HoldfastError(f"classes of npz:{path} must be a list of names, got shape {names.shape}")
    classes = tuple(str(name) for name in names) if names is not None else tuple(str(i) for i in range(highest + 1))
    if highest >= len(classes):
        raise HoldfastError(f"y of npz:{path} must be below its {len(classes)} classes, got {highest}")
    return classes
