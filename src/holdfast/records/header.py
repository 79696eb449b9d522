"""Header and image list of a record set: ``evaluation.json`` and ``images.safetensors``."""

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
FORMAT = 2  # of new record sets; other formats are refused
KINDS: dict[str, type] = {
    **dict.fromkeys(("format", "shard_size", "images", "classes", "limit", "seed"), int),
    **dict.fromkeys(("attack_batch_size", "batch_size"), int),
    **dict.fromkeys(("fingerprint", "task", "model", "architecture", "model_fingerprint", "data", "data_label"), str),
    **dict.fromkeys(("images_digest", "model_files"), str),
    **dict.fromkeys(("data_fingerprint", "data_content", "label", "labels", "preset", "frost", "amp", "exif"), str),
    **dict.fromkeys(("views", "partial", "class_names", "train_domains"), list),
    **dict.fromkeys(("preprocessing", "versions", "probe", "class_map", "options"), dict),
}
MAY_BE_NONE = ("limit", "architecture")
CLASSIFICATION = "classification"  # the task of records that do not name one


def write_header(folder: Path, header: Mapping[str, Any]) -> None:
    """Write ``evaluation.json``, with a digest of the image list if that is already written."""
    values = {**header, "images_digest": images_digest(*read_images(folder))} if (folder / IMAGES).exists() else header
    atomic.write_text(folder / HEADER, json.dumps(dict(values), indent=2, sort_keys=True) + "\n")


def read_header(folder: Path) -> dict[str, Any]:
    """Read and check the header of a record set, ``evaluation.json``."""
    try:
        header = json.loads((folder / HEADER).read_text(encoding="utf-8"))
        missing = [key for key in ("fingerprint", "shard_size", "views") if key not in header]
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise HoldfastError(
            f"{str(folder / HEADER)!r} cannot be read as the header of records; evaluate again"
        ) from error
    if not isinstance(header, dict):
        raise HoldfastError(f"{str(folder / HEADER)!r} cannot be read as the header of records; evaluate again")
    if missing:
        raise HoldfastError(f"{str(folder / HEADER)!r} must contain {', '.join(missing)}, but does not; evaluate again")
    _check_kinds(header, folder)
    found = header.get("format", FORMAT)
    if found < FORMAT:
        raise HoldfastError(
            f"records in {str(folder)!r} are of format {found}, which Holdfast no longer reads: evaluate again"
        )
    if found > FORMAT:
        raise HoldfastError(f"{str(folder / HEADER)!r} was written by a later version of Holdfast; update to read it")
    return {"task": CLASSIFICATION, **header}


def _check_kinds(header: Mapping[str, Any], folder: Path) -> None:
    """Raise an error if a value of the header has another type than Holdfast writes."""
    for key, kind in KINDS.items():
        value = header.get(key)
        if key not in header or (value is None and key in MAY_BE_NONE):
            continue
        if not isinstance(value, kind) or isinstance(value, bool):
            raise HoldfastError(f"{str(folder / HEADER)!r} must hold {key} as {kind.__name__}, got {value!r:.60}")
    texts = [text for key in ("views", "partial", "class_names", "train_domains") for text in header.get(key) or []]
    if not header["views"] or not all(isinstance(text, str) for text in texts) or header["shard_size"] < 1:
        wrong = "views, partial, class_names, train_domains or shard_size have invalid values"
        raise HoldfastError(f"{str(folder / HEADER)!r} is damaged: {wrong}")


def write_images(folder: Path, ids: Sequence[str], targets: np.ndarray) -> None:
    """Write the image list: ids, and targets as the task records them, one row each."""
    text = np.frombuffer("\0".join(ids).encode("utf-8", "surrogateescape"), dtype=np.uint8)
    with atomic.replace_file(folder / IMAGES) as temporary:
        temporary.write_bytes(save({"ids": text.copy(), "targets": np.ascontiguousarray(targets)}))


def images_digest(ids: np.ndarray, targets: np.ndarray) -> str:
    """Digest of the image ids and targets."""
    digest = hashlib.blake2b("\0".join(ids.tolist()).encode("utf-8", "surrogateescape"), digest_size=16)
    digest.update(f"{targets.dtype.str}\0{targets.shape}".encode())
    digest.update(np.ascontiguousarray(targets).tobytes())
    return digest.hexdigest()


def check_images(header: Mapping[str, Any], ids: np.ndarray, targets: np.ndarray, *, folder: Path) -> None:
    """Raise an error if the image list does not match the header's digest; earlier records have no digest."""
    if header.get("images_digest") not in (None, images_digest(ids, targets)):
        raise HoldfastError(f"{str(folder / IMAGES)!r} is damaged: its ids or targets are not those that were measured")


def read_images(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read the image list: ids (text) and targets."""
    try:
        arrays = load_file(folder / IMAGES)
        ids = arrays["ids"].tobytes().decode("utf-8", "surrogateescape").split("\0")
        targets = arrays["targets"]
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise HoldfastError(
            f"{str(folder / IMAGES)!r} cannot be read as the image list of records; evaluate again"
        ) from error
    if len(ids) != len(targets):
        raise HoldfastError(f"{str(folder / IMAGES)!r} is damaged: {len(ids)} ids for {len(targets)} targets")
    return np.array(ids, dtype=np.str_), targets
