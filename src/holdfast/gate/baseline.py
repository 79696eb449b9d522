"""Baseline file of a gate: one small JSON file that can be committed beside the code.

It stores the per-image values of the paired test: correctness is one bit, so 50,000 images × 76 cells take well below
a megabyte. Columns with few distinct values are stored as indices into them, integers (pixel counts) as such;
other columns (the NLL of every image) are omitted, and their scores need the records themselves.
"""

import base64
import binascii
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import HoldfastError
from holdfast.gate.paired_scores import PairedScores
from holdfast.io import atomic
from holdfast.metrics.scoring.base import Key

FORMAT = 2  # format 1 had bootstrap samples of AP instead of jackknife replicates
PARTIAL = 3  # with images of each cell's own; a complete baseline keeps the format that earlier versions read
LARGEST = 2**28  # largest file in bytes that is read
MOST_IMAGES = 10**7
_WHOLE = (np.uint8, np.uint16, np.uint32)


def save_baseline(sides: Sequence[PairedScores], path: Path) -> int:
    """Write a baseline; returns its size in bytes."""
    number = PARTIAL if any(each.rows for each in sides) else FORMAT
    content = {"holdfast_baseline": number, "sets": [_plain_set(each) for each in sides]}
    text = json.dumps({"checksum": content_checksum(content), **content}, indent=1, sort_keys=True) + "\n"
    atomic.write_text(path, text)
    return len(text)


def read_baseline(path: Path) -> list[PairedScores]:
    """Read a baseline; raises an error for a file that is not exactly as written."""
    try:
        if path.stat().st_size > LARGEST:
            raise HoldfastError(f"a baseline must be smaller than {LARGEST >> 20} MB, got {str(path)!r}")
        content = json.loads(path.read_text(encoding="utf-8"))
        checksum = content.pop("checksum")
        number = content["holdfast_baseline"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, HoldfastError):
            raise
        raise HoldfastError(
            f"baseline must be a run, a folder of records or a file of `holdfast gate --save`, got {str(path)!r}"
        ) from error
    if number not in (FORMAT, PARTIAL):
        raise HoldfastError(
            f"{str(path)!r} was written by another version of Holdfast (format {number!r}); save it again"
        )
    if checksum != content_checksum(content):
        raise HoldfastError(f"{str(path)!r} is damaged: its content does not match its checksum; save it again")
    try:
        sets = [_parse_set(each) for each in content["sets"]]
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error, binascii.Error) as error:
        if isinstance(error, HoldfastError):
            raise
        raise HoldfastError(f"{str(path)!r} is damaged: {' '.join(str(error).split())}; save it again") from error
    if not sets:
        raise HoldfastError(f"a baseline must have a data set, got none in {str(path)!r}; save it again")
    return sets


def _plain_set(scores: PairedScores) -> dict[str, Any]:
    packed = {_name(key): pack_column(values) for key, values in scores.columns.items()}
    packed |= {_name(key): {"always": float(values[0])} for key, values in scores.of_sets.items()}
    replicated = {_name(key): values[1:] for key, values in scores.of_sets.items()}
    return {
        "header": dict(scores.header),
        "cells": {name: dict(header) for name, header in scores.cells.items()},
        "order": list(scores.cells),
        "count": scores.count,
        "missing": [] if scores.rows else list(scores.missing),
        **_plain_rows(scores),
        "digest": scores.digest,
        "columns": {name: column for name, column in packed.items() if column is not None},
        "left_out": [*map(_name, scores.left_out), *(name for name, column in packed.items() if column is None)],
        "unfinished": list(scores.unfinished),
        "groups": max(map(len, replicated.values()), default=0),
        "replicates": {name: _text(values) if len(values) else "" for name, values in replicated.items()},
        "unreadable": list(scores.unreadable),
    }


def _parse_set(values: Mapping[str, Any]) -> PairedScores:
    count = int(values["count"])
    if not 0 < count <= MOST_IMAGES:
        raise HoldfastError(f"a baseline must have 1 to {MOST_IMAGES} images, got {count}; save it again")
    kept = {_key(name)[0] for name in (*values["columns"], *values["left_out"])}
    if empty := [name for name in values["order"] if name not in kept]:
        raise HoldfastError(f"a baseline must have values of every cell, but has none of {empty[0]!r}; save it again")
    whole, rows = _of_sets(values), _parse_rows(values, count)
    counts = {name: len(each) for name, each in rows.items()}
    return PairedScores(
        dict(values["header"]),
        {name: values["cells"][name] for name in values["order"]},
        {
            _key(name): unpack_column(column, counts.get(_key(name)[0], count))
            for name, column in values["columns"].items()
            if name not in whole
        },
        count,
        tuple(values["missing"]),
        str(values["digest"]),
        left_out=tuple(map(_key, values["left_out"])),
        unfinished=tuple(values["unfinished"]),
        unreadable=tuple(values["unreadable"]),
        of_sets={_key(name): found for name, found in whole.items()},
        rows=rows,
        seen=_bits(values["seen"], int(values["all_images"])) if rows else None,
    )


def _plain_rows(scores: PairedScores) -> dict[str, Any]:
    """Which images were seen at all, and of those in which cells, one bit each."""
    if not scores.rows:
        return {}
    seen = scores.seen
    if seen is None:
        assert scores.ids is not None
        seen = np.isin(sorted([*scores.ids.tolist(), *scores.missing]), scores.ids)
    cells = {name: np.isin(np.arange(scores.count), each) for name, each in scores.rows.items()}
    return {
        "all_images": len(seen),
        "seen": _text(np.packbits(seen)),
        "rows": {name: _text(np.packbits(each)) for name, each in cells.items()},
    }


def _parse_rows(values: Mapping[str, Any], count: int) -> dict[str, NDArray[np.int64]]:
    rows = {name: np.flatnonzero(_bits(text, count)) for name, text in values.get("rows", {}).items()}
    if rows and (set(rows) != set(values["order"]) or int(values["all_images"]) > MOST_IMAGES):
        raise ValueError("its cells and their images do not agree")
    return rows


def _bits(text: str, count: int) -> NDArray[np.bool_]:
    return np.unpackbits(_array(text, -(-count // 8), np.uint8))[:count].astype(bool)


def _of_sets(values: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Scores of a whole set, with their replicates if they have any."""
    groups = int(values["groups"])
    return {
        name: np.array([values["columns"][name]["always"], *(_array(text, groups, np.float64) if text else ())])
        for name, text in values["replicates"].items()
    }


def _name(key: Key) -> str:
    return "|".join(key)


def _key(name: str) -> Key:
    cell, _, quantity = name.partition("|")
    return cell, quantity


def pack_column(values: NDArray[np.float64]) -> dict[str, Any] | None:
    """A column of few distinct values as text; None for others."""
    distinct, places = np.unique(values, return_inverse=True)
    if len(distinct) == 1:
        return {"always": float(distinct[0])}
    if len(distinct) == 2:
        return {"one_of": distinct.tolist(), "bits": _text(np.packbits(places.astype(bool)))}
    if len(distinct) <= 256:
        return {"one_of": distinct.tolist(), "places": _text(places.astype(np.uint8))}
    kind = next((kind for kind in _WHOLE if _fits(values, kind)), None)
    return None if kind is None else {"whole": np.dtype(kind).name, "values": _text(values.astype(kind))}


def unpack_column(column: Mapping[str, Any], count: int) -> NDArray[np.float64]:
    """The column that `pack_column` packed."""
    if "always" in column:
        return np.full(count, float(column["always"]))
    if "whole" in column:
        kind = {np.dtype(kind).name: kind for kind in _WHOLE}[column["whole"]]
        return _array(column["values"], count, kind).astype(np.float64)
    if "bits" in column:
        bits = np.unpackbits(_array(column["bits"], -(-count // 8), np.uint8))[:count]
        return np.array(column["one_of"], np.float64)[bits]
    return np.array(column["one_of"], np.float64)[_array(column["places"], count, np.uint8)]


def _fits(values: NDArray[np.float64], kind: Any) -> bool:
    return bool(np.all(values == np.floor(values)) and values.min() >= 0 and values.max() <= np.iinfo(kind).max)


def _text(array: NDArray[Any]) -> str:
    return base64.b64encode(zlib.compress(array.tobytes(), 9)).decode("ascii")


def _array(text: str, count: int, kind: Any) -> NDArray[Any]:
    wanted = count * np.dtype(kind).itemsize
    unpacking = zlib.decompressobj()  # bounded, so that a small file cannot expand without limit
    content = unpacking.decompress(base64.b64decode(text, validate=True), wanted + 1)
    if len(content) != wanted:
        raise ValueError(f"a column holds {len(content)} bytes, expected {wanted}")
    return np.frombuffer(content, kind)


def content_checksum(content: Mapping[str, Any]) -> str:
    """Digest of a baseline's content."""
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()
