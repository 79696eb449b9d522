"""One finished unit of work on disk: what the model said of one shard of images in one cell.

A unit is one safetensors file that is renamed into place, so it is either complete or not there. Its JSON header says
what was measured; a checksum over header and arrays tells a damaged file from a good one. Nothing is ever unpickled.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from holdfast.errors import HoldfastError

Arrays = Mapping[str, np.ndarray]

FIELDS = {"predictions": np.int32, "confidences": np.float32, "nll": np.float32, "top5": np.bool_}
TOP_FIVE = "top_five"  # the five best classes of every frame, only in sequences
UNFINISHED = ".tmp"
SEPARATOR = "|"  # between a view's name and a field


class DamagedUnit(HoldfastError):
    """A unit file that is not what its own header promises."""


@dataclass(frozen=True)
class Unit:
    """What one shard of images gave in one cell.

    Attributes:
        header: plain data: ``cell`` (its name), ``definition``, ``shard``, ``fingerprint`` and ``views``.
        rows: the images' places in the list of all images, without those that could not be read, int64 (n,).
        excluded: the places of those, int64.
        arrays: per view and field (``view|predictions``) one value per image, (n,), or per image and frame, (n, f).
    """

    header: Mapping[str, Any]
    rows: np.ndarray
    excluded: np.ndarray
    arrays: Arrays


def unit_name(cell: str, shard: int) -> str:
    """The file of a unit: ``fog/3`` of shard 2 is ``fog.3.00002.safetensors``."""
    return f"{cell.replace('/', '.')}.{shard:05d}.safetensors"


def write_unit(folder: Path, unit: Unit) -> Path:
    """Write one unit into the folder, in one move."""
    path = folder / unit_name(unit.header["cell"], unit.header["shard"])
    tensors = {name: np.ascontiguousarray(array) for name, array in _named(unit).items()}
    header = json.dumps(dict(unit.header), sort_keys=True)
    # a single entry: safetensors writes several in any order, and equal units should be equal files
    told = json.dumps({"checksum": _checksum(header, tensors), "header": header})
    _replace(path, save(tensors, metadata={"unit": told}))
    return path


def read_unit(path: Path) -> Unit:
    """Read one unit; raises :class:`DamagedUnit` if a single bit of it changed."""
    try:
        with safe_open(path, framework="numpy") as file:
            told = json.loads((file.metadata() or {})["unit"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        header = told["header"]
        if told["checksum"] != _checksum(header, tensors):
            raise DamagedUnit(f"{path.name} is damaged: its content does not match its checksum")
        unit = Unit(json.loads(header), tensors.pop("rows"), tensors.pop("excluded"), tensors)
        _check(unit)
    except DamagedUnit:
        raise
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        raise DamagedUnit(f"{path.name} is damaged: {' '.join(str(error).split())}") from error
    return unit


def set_aside(path: Path) -> Path:
    """Rename a damaged file, so that it is never read again but can be looked at; returns its new name."""
    number = 0
    while (target := path.with_name(f"{path.name}.damaged{number or ''}")).exists():
        number += 1
    os.replace(path, target)
    return target


def field_name(view: str, field: str) -> str:
    """The array of one field of one view; plain models have the single view ``""``."""
    return f"{view}{SEPARATOR}{field}" if view else field


def remove_leftovers(folder: Path, *, seconds: float = 60) -> None:
    """Remove what killed processes did not finish: writing a unit takes milliseconds, so old files are theirs."""
    for path in folder.glob(f".*{UNFINISHED}"):
        with contextlib.suppress(OSError):  # another process may remove it, too
            if time.time() - path.stat().st_mtime > seconds:
                path.unlink()


def _replace(path: Path, content: bytes) -> None:
    """Written under another name and renamed, but not synced: after a power cut, the checksum tells."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{UNFINISHED}")
    try:
        temporary.write_bytes(content)  # save_file would hide the file from everybody but its owner
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _named(unit: Unit) -> dict[str, np.ndarray]:
    return {"rows": unit.rows.astype(np.int64), "excluded": unit.excluded.astype(np.int64), **unit.arrays}


def _checksum(header: str, tensors: Arrays) -> str:
    digest = hashlib.blake2b(header.encode(), digest_size=16)
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name}\0{array.dtype.str}\0{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _check(unit: Unit) -> None:
    for view in unit.header["views"]:
        for field in FIELDS:
            array = unit.arrays[field_name(view, field)]
            if len(array) != len(unit.rows):
                raise DamagedUnit(f"{field} holds {len(array)} images, expected {len(unit.rows)}")
