"""The two files that every record set has once: what was measured, and on which images."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from holdfast.errors import HoldfastError
from holdfast.io import atomic

HEADER, IMAGES, FOLDER = "evaluation.json", "images.safetensors", "records"
FORMAT = 2  # of what is written; records of another number are refused
KINDS: dict[str, type] = {
    **dict.fromkeys(("format", "shard_size", "images", "classes", "limit", "seed"), int),
    **dict.fromkeys(("attack_batch_size", "batch_size"), int),
    **dict.fromkeys(("fingerprint", "task", "model", "architecture", "model_fingerprint", "data", "data_label"), str),
    "images_digest": str,
    **dict.fromkeys(("data_fingerprint", "data_content", "label", "labels", "preset", "frost", "amp", "exif"), str),
    **dict.fromkeys(("views", "partial", "class_names"), list),
    **dict.fromkeys(("preprocessing", "versions", "probe"), dict),
}
MAY_BE_NONE = ("limit", "architecture")
CLASSIFICATION = "classification"  # what records without a task are of


def write_header(folder: Path, header: Mapping[str, Any]) -> None:
    """Write ``evaluation.json``; of images that were written before, it keeps a digest."""
    told = {**header, "images_digest": images_digest(*read_images(folder))} if (folder / IMAGES).exists() else header
    atomic.write_text(folder / HEADER, json.dumps(dict(told), indent=2, sort_keys=True) + "\n")


def read_header(folder: Path) -> dict[str, Any]:
    """Read ``evaluation.json``."""
    try:
        header = json.loads((folder / HEADER).read_text(encoding="utf-8"))
        missing = [key for key in ("fingerprint", "shard_size", "views") if key not in header]
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise HoldfastError(f"{str(folder / HEADER)!r} cannot be read as the header of records") from error
    if not isinstance(header, dict):
        raise HoldfastError(f"{str(folder / HEADER)!r} cannot be read as the header of records")
    if missing:
        raise HoldfastError(f"{str(folder / HEADER)!r} must name {', '.join(missing)}, but does not")
    _check_kinds(header, folder)
    told = header.get("format", FORMAT)
    if told < FORMAT:
        raise HoldfastError(
            f"records in {str(folder)!r} are of format {told}, which Holdfast no longer reads: evaluate again"
        )
    if told > FORMAT:
        raise HoldfastError(f"{str(folder / HEADER)!r} was written by a later Holdfast; update to read it")
    return {"task": CLASSIFICATION, **header}


def _check_kinds(header: Mapping[str, Any], folder: Path) -> None:
    """Refuse a header that holds something else than we write, before anybody counts on it."""
    for key, kind in KINDS.items():
        value = header.get(key)
        if key not in header or (value is None and key in MAY_BE_NONE):
            continue
        if not isinstance(value, kind) or isinstance(value, bool):
            raise HoldfastError(f"{str(folder / HEADER)!r} must hold {key} as {kind.__name__}, got {value!r:.60}")
    texts = [*header["views"], *(header.get("partial") or []), *(header.get("class_names") or [])]
    if not header["views"] or not all(isinstance(text, str) for text in texts) or header["shard_size"] < 1:
        wrong = "views, partial, class_names or shard_size are not what we write"
        raise HoldfastError(f"{str(folder / HEADER)!r} is damaged: {wrong}")


def write_images(folder: Path, ids: Sequence[str], targets: np.ndarray) -> None:
    """Write the list of all images: their ids, and what the task keeps of their targets, one row each."""
    text = np.frombuffer("\0".join(ids).encode("utf-8", "surrogateescape"), dtype=np.uint8)
    with atomic.replace_file(folder / IMAGES) as temporary:
        temporary.write_bytes(save({"ids": text.copy(), "targets": np.ascontiguousarray(targets)}))


def images_digest(ids: np.ndarray, targets: np.ndarray) -> str:
    """What tells other names or other targets from those that were measured."""
    digest = hashlib.blake2b("\0".join(ids.tolist()).encode("utf-8", "surrogateescape"), digest_size=16)
    digest.update(f"{targets.dtype.str}\0{targets.shape}".encode())
    digest.update(np.ascontiguousarray(targets).tobytes())
    return digest.hexdigest()


def check_images(header: Mapping[str, Any], ids: np.ndarray, targets: np.ndarray, *, folder: Path) -> None:
    """Refuse images that are not those of the header; records of before keep no digest of theirs."""
    if header.get("images_digest") not in (None, images_digest(ids, targets)):
        raise HoldfastError(
            f"{str(folder / IMAGES)!r} is damaged: its names or targets are not those that were measured"
        )


def read_images(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read the list of all images: ids (text) and targets."""
    try:
        arrays = load_file(folder / IMAGES)
        ids = arrays["ids"].tobytes().decode("utf-8", "surrogateescape").split("\0")
        targets = arrays["targets"]
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise HoldfastError(f"{str(folder / IMAGES)!r} cannot be read as the images of records") from error
    if len(ids) != len(targets):
        raise HoldfastError(f"{str(folder / IMAGES)!r} is damaged: {len(ids)} ids for {len(targets)} targets")
    return np.array(ids, dtype=np.str_), targets
