"""Unit files: the recorded outputs for one shard of images in one cell, as a safetensors file.

A unit is one file that is renamed into place, so it is either complete or missing. Its JSON header says
what was measured; a checksum over header and arrays detects damage. Nothing is ever unpickled.
A field holds one row per image, or an array of varying length per image (the boxes of a detector), which is
written as one concatenated array with the offset of every image.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from holdfast.errors import HoldfastError
from holdfast.io import atomic
from holdfast.io.validation import file_name

Field = np.ndarray | tuple[np.ndarray, ...]  # a row per image, or an array per image
Fields = Mapping[str, Field]

SEPARATOR = "|"  # between a view's name and a field
BEGINNINGS = "#begin"  # suffix of the array of offsets


class DamagedUnit(HoldfastError):
    """A unit file whose content does not match its header or checksum."""


@dataclass(frozen=True)
class Unit:
    """Recorded outputs for one shard of images in one cell.

    Attributes:
        header: plain data: ``cell`` (its name), ``definition``, ``shard``, ``fingerprint`` and ``views``.
        rows: row numbers of the readable images in the image list, int64 (n,).
        excluded: row numbers of the unreadable images, int64.
        arrays: by view and field (``view|predictions``) one row per image, or a tuple with one array per image.
    """

    header: Mapping[str, Any]
    rows: np.ndarray
    excluded: np.ndarray
    arrays: Fields


def unit_name(cell: str, shard: int) -> str:
    """File name of a unit: ``fog/3`` of shard 2 is ``fog.3.00002.safetensors``."""
    return f"{_stem(cell)}.{shard:05d}.safetensors"


def is_named_for(unit: Unit, path: Path) -> bool:
    """Whether a file's name matches its cell and shard; a copy under another name would count twice."""
    shard = unit.header.get("shard")
    return isinstance(shard, int) and unit_name(str(unit.header["cell"]), shard) == path.name


def shard_paths(folder: Path, *, wanted: Sequence[str] | None) -> dict[str, list[Path]]:
    """Unit files of the wanted cells, or of all cells, in the order of their shards."""
    paths: dict[str, list[Path]] = {} if wanted is None else {_stem(cell): [] for cell in wanted}
    for path in sorted(folder.glob("[!.]*.safetensors")):
        stem, _, shard = path.name.removesuffix(".safetensors").rpartition(".")
        if stem and shard.isdigit() and (wanted is None or stem in paths):
            paths.setdefault(stem, []).append(path)
    return paths if wanted is None else {cell: paths[_stem(cell)] for cell in wanted}


def write_unit(folder: Path, unit: Unit) -> Path:
    """Write one unit into the folder, atomically."""
    return save_unit(folder / unit_name(unit.header["cell"], unit.header["shard"]), unit)


def save_unit(path: Path, unit: Unit) -> Path:
    """Write one unit as a file of any name, atomically."""
    tensors = {name: np.ascontiguousarray(array) for name, array in _named_arrays(unit).items()}
    header = json.dumps(dict(unit.header), sort_keys=True)
    # one metadata entry: safetensors writes several in arbitrary order, and equal units must give equal files
    metadata = json.dumps({"checksum": _checksum(header, tensors), "header": header})
    with atomic.replace_unsynced(path) as temporary:  # the checksum detects a loss of power
        # safetensors' save_file would make the file readable by its owner only
        temporary.write_bytes(save(tensors, metadata={"unit": metadata}))
    return path


def read_unit(path: Path) -> Unit:
    """Read one unit; raises `DamagedUnit` if a single bit of it changed."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = json.loads((file.metadata() or {})["unit"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        header = metadata["header"]
        if metadata["checksum"] != _checksum(header, tensors):
            raise DamagedUnit(f"{path.name} is damaged: its content does not match its checksum")
        unit = Unit(json.loads(header), tensors.pop("rows"), tensors.pop("excluded"), _unpack_fields(tensors))
        _check(unit)
    except DamagedUnit:
        raise
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        raise DamagedUnit(f"{path.name} is damaged: {' '.join(str(error).split())}") from error
    return unit


def set_aside(path: Path) -> Path:
    """Rename a damaged file so that it is kept but never read; returns the new path."""
    number = 0
    while (target := path.with_name(f"{path.name}.damaged{number or ''}")).exists():
        number += 1
    os.replace(path, target)
    return target


def field_name(view: str, field: str) -> str:
    """Name of the array of a field and view; models without views have the single view ``""``."""
    return f"{view}{SEPARATOR}{field}" if view else field


def fields_of(unit: Unit, view: str) -> list[str]:
    """Field names of one view of a unit."""
    prefix = field_name(view, "")
    return [
        name.removeprefix(prefix) for name in unit.arrays if name.startswith(prefix) and (view or SEPARATOR not in name)
    ]


def _named_arrays(unit: Unit) -> dict[str, np.ndarray]:
    places = {"rows": unit.rows.astype(np.int64), "excluded": unit.excluded.astype(np.int64)}
    return {**places, **{key: array for name, field in unit.arrays.items() for key, array in _pack_field(name, field)}}


def _pack_field(name: str, field: Field) -> list[tuple[str, np.ndarray]]:
    if isinstance(field, np.ndarray):
        return [(name, field)]
    if not field:
        raise HoldfastError(f"{name} must be an array per image, got none; return an empty array instead")
    ends = np.cumsum([0, *map(len, field)], dtype=np.int64)
    return [(name, np.concatenate(field)), (f"{name}{BEGINNINGS}", ends)]


def _unpack_fields(tensors: Mapping[str, np.ndarray]) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    for name, values in tensors.items():
        if name.endswith(BEGINNINGS):
            continue
        ends = tensors.get(f"{name}{BEGINNINGS}")
        fields[name] = values if ends is None else tuple(values[a:b] for a, b in pairwise(ends))
    return fields


def _stem(cell: str) -> str:
    return file_name(cell.replace("/", "."))


def _checksum(header: str, tensors: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.blake2b(header.encode(), digest_size=16)
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name}\0{array.dtype.str}\0{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _check(unit: Unit) -> None:
    for view in unit.header["views"]:
        if not fields_of(unit, view):
            raise DamagedUnit(f"view {view!r} has no fields")
    for name, values in unit.arrays.items():
        if len(values) != len(unit.rows):
            raise DamagedUnit(f"{name} has {len(values)} images, expected {len(unit.rows)}")
