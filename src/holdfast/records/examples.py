"""Example images: thumbnails of some images of some cells, with ground truth and prediction.

They are stored beside the units of a record set in one file, ``examples.safetensors``. Scores do not need them:
without the file only the pictures are missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.records.shard_files import DamagedUnit, Unit, read_unit, save_unit

EXAMPLES = "examples.safetensors"
PICTURE, UNCHANGED = "picture", "clean_picture"


@dataclass(frozen=True, eq=False)
class Example:
    """One image of one cell.

    Attributes:
        id: image id, as in the records.
        cell: name of the cell, such as ``fog/3``.
        picture: PNG or JPEG thumbnail of the model's input.
        fields: further arrays of the task that records do not hold.
        clean: thumbnail of the clean image; empty for clean images and in files of before.
    """

    id: str
    cell: str
    picture: bytes
    fields: Mapping[str, np.ndarray]
    clean: bytes = b""


def write_examples(folder: Path, examples: Sequence[Example], *, fingerprint: str) -> Path:
    """Write the examples of a record set, atomically."""
    names: dict[str, Any] = {"ids": [each.id for each in examples], "cells": [each.cell for each in examples]}
    fields = dict.fromkeys(name for each in examples for name in each.fields)
    arrays = {PICTURE: tuple(np.frombuffer(each.picture, np.uint8) for each in examples)}
    arrays |= {UNCHANGED: tuple(np.frombuffer(each.clean, np.uint8) for each in examples)}
    arrays |= {name: tuple(each.fields.get(name, np.empty(0, np.uint8)) for each in examples) for name in fields}
    header = {"fingerprint": fingerprint, "views": [""], **names}
    unit = Unit(header, np.arange(len(examples)), np.empty(0, np.int64), arrays if examples else {})
    return save_unit(folder / EXAMPLES, unit)


def read_examples(folder: Path | None, *, fingerprint: str) -> list[Example]:
    """Read the examples of a record set; an empty list if they are missing, damaged or of other records."""
    if folder is None or not (folder / EXAMPLES).is_file():
        return []
    try:
        unit = read_unit(folder / EXAMPLES)
        ids, cells = list(map(str, unit.header["ids"])), list(map(str, unit.header["cells"]))
    except (DamagedUnit, KeyError, TypeError):
        return []
    if unit.header.get("fingerprint") != fingerprint or not len(ids) == len(cells) == len(unit.rows):
        return []
    fields = {name: values for name, values in unit.arrays.items() if name not in (PICTURE, UNCHANGED)}
    clean = unit.arrays.get(UNCHANGED)
    return [
        Example(
            id,
            cell,
            np.asarray(unit.arrays[PICTURE][number]).tobytes(),
            {name: np.asarray(values[number]) for name, values in fields.items() if len(values[number])},
            np.asarray(clean[number]).tobytes() if clean is not None else b"",
        )
        for number, (id, cell) in enumerate(zip(ids, cells, strict=True))
    ]
