"""Round files: what an anytime evaluation has measured so far, some images of many cells in each file.

They lie in the folder ``rounds`` of a record set until all images are measured; then everything is written as units
(`holdfast.records.shard_files`), and the folder disappears. A file is named by a digest of what it holds, so that
processes need no lock, and whatever was measured twice counts once.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.records.shard_files import DamagedUnit, Field, Fields, Unit, read_unit, save_unit, set_aside

logger = logging.getLogger(__name__)

ROUNDS = "rounds"  # folder of the round files
MOST_FILES = 1000  # more are joined


@dataclass(frozen=True)
class CellPart:
    """Recorded outputs of some images in one cell.

    Attributes:
        cell: name of the cell.
        definition: its definition, as in a unit's header.
        rows: row numbers of the readable images, ascending.
        excluded: row numbers of the unreadable images.
        arrays: by view and field, as in a unit.
    """

    cell: str
    definition: Mapping[str, Any]
    rows: np.ndarray
    excluded: np.ndarray
    arrays: Fields

    @property
    def all_rows(self) -> np.ndarray:
        """Row numbers of all images, readable or not."""
        return np.concatenate([self.rows, self.excluded])

    def only(self, wanted: np.ndarray) -> "CellPart":
        """The images whose row numbers are among ``wanted``."""
        keep = np.isin(self.rows, wanted)
        arrays = {name: _chosen(values, np.flatnonzero(keep)) for name, values in self.arrays.items()}
        excluded = self.excluded[np.isin(self.excluded, wanted)]
        return CellPart(self.cell, self.definition, self.rows[keep], excluded, arrays)


def join_parts(parts: Sequence[CellPart]) -> CellPart:
    """All images of several parts of one cell, each once, in the order of their rows."""
    rows = np.concatenate([part.rows for part in parts])
    rows, places = np.unique(rows, return_index=True)
    filled = [part for part in parts if len(part.rows)] or parts[:1]
    arrays = {name: _chosen(_joined([part.arrays[name] for part in filled]), places) for name in filled[0].arrays}
    excluded = np.unique(np.concatenate([part.excluded for part in parts]))
    return CellPart(parts[0].cell, parts[0].definition, rows, excluded, arrays)


@dataclass
class Measured:
    """Everything that the round files of a record set hold, by cell.

    Attributes:
        folder: folder of the record set.
        fingerprint: fingerprint of the record set, which every file repeats.
        views: views of the model.
        parts: parts by cell.
    """

    folder: Path
    fingerprint: str
    views: Sequence[str]
    parts: dict[str, list[CellPart]] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def read_new(self, *, repair: bool = False) -> list[CellPart]:
        """Read the files that were written since; ``repair`` sets damaged ones aside. Returns their parts."""
        found = []
        for path in sorted((self.folder / ROUNDS).glob("[!.]*.safetensors")):
            if path.name in self._seen:
                continue
            try:
                parts = _read(path, fingerprint=self.fingerprint, views=self.views)
            except DamagedUnit as error:
                if not path.exists():  # another process has joined the files
                    continue
                kept = f"; kept as {set_aside(path).name}, measuring again" if repair else ""
                logger.warning("%s%s", error, kept)
                continue
            finally:
                self._seen.add(path.name)
            found += parts
        for part in found:
            self.parts.setdefault(part.cell, []).append(part)
        return found

    def write(self, parts: Sequence[CellPart]) -> None:
        """Write some parts into files, one for all cells with the same fields, and keep them."""
        (self.folder / ROUNDS).mkdir(exist_ok=True)
        for alike in _alike(parts):
            self._seen.add(_write(self.folder, alike, fingerprint=self.fingerprint, views=self.views))
        for part in parts:
            self.parts.setdefault(part.cell, []).append(part)

    def of(self, cell: str) -> CellPart | None:
        """All images of a cell; None if there are none."""
        parts = self.parts.get(cell)
        if not parts:
            return None
        if len(parts) > 1:  # of another definition only if the cell is no longer what it was
            parts = [part for part in parts if part.definition == parts[-1].definition]
            self.parts[cell] = parts = [join_parts(parts)]
        return parts[0]

    def compact_if_many(self) -> None:
        """Join the files if there are more than a thousand; no other process may be reading them."""
        if len(self._seen) > MOST_FILES:
            self.compact()

    def compact(self) -> None:
        """Join all files into as few as there are kinds of cells; killed meanwhile, nothing counts twice."""
        self.read_new()
        if not self.parts:
            return
        before = self._seen
        self._seen = set()
        whole = [part for name in self.parts if (part := self.of(name)) is not None]
        for alike in _alike(whole):
            self._seen.add(_write(self.folder, alike, fingerprint=self.fingerprint, views=self.views))
        for name in before - self._seen:
            (self.folder / ROUNDS / name).unlink(missing_ok=True)

    def keep_only(self, definitions: Mapping[str, Any], *, repair: bool) -> None:
        """Forget what was measured of these cells by other definitions; ``repair`` removes it from the files."""
        stale = [
            (name, part)
            for name, parts in self.parts.items()
            for part in parts
            if name in definitions and part.definition != definitions[name]
        ]
        if stale:
            names = ", ".join(dict.fromkeys(name for name, _ in stale))
            if repair:
                logger.warning("measuring %s again: measured with other settings before", names)
            gone = {id(part) for _, part in stale}
            kept = {name: [part for part in parts if id(part) not in gone] for name, parts in self.parts.items()}
            self.parts = {name: parts for name, parts in kept.items() if parts}
            if repair:
                self.compact()

    def remove(self) -> None:
        """Remove the files, when their content is in units."""
        folder = self.folder / ROUNDS
        for path in folder.glob("*"):
            path.unlink(missing_ok=True)
        if folder.exists():
            folder.rmdir()
        self.parts, self._seen = {}, set()


def has_rounds(folder: Path) -> bool:
    """Whether a record set has round files."""
    return any((folder / ROUNDS).glob("[!.]*.safetensors"))


def _alike(parts: Sequence[CellPart]) -> Iterator[list[CellPart]]:
    """Group parts whose fields have the same types and shapes per image; files hold one array per field."""
    groups: dict[str, list[CellPart]] = {}
    for part in parts:
        groups.setdefault(repr(sorted((name, _layout(values)) for name, values in part.arrays.items())), []).append(
            part
        )
    yield from groups.values()


def _layout(values: Field) -> tuple[Any, ...]:
    if isinstance(values, np.ndarray):
        return (values.dtype.str, values.shape[1:])
    return ("varying",)


def _write(folder: Path, parts: Sequence[CellPart], *, fingerprint: str, views: Sequence[str]) -> str:
    ordered = sorted(parts, key=lambda part: part.cell)
    cells = [[part.cell, dict(part.definition), len(part.rows), len(part.excluded)] for part in ordered]
    header = {"cell": ROUNDS, "cells": cells, "fingerprint": fingerprint, "views": list(views)}
    rows, excluded = (np.concatenate([getattr(part, name) for part in ordered]) for name in ("rows", "excluded"))
    arrays = {name: _joined([part.arrays[name] for part in ordered]) for name in ordered[0].arrays}
    digest = hashlib.blake2b(json.dumps(header, sort_keys=True).encode(), digest_size=12)
    digest.update(rows.tobytes() + b"|" + excluded.tobytes())
    name = f"{digest.hexdigest()}.safetensors"
    save_unit(folder / ROUNDS / name, Unit(header, rows, excluded, arrays))
    return name


def _read(path: Path, *, fingerprint: str, views: Sequence[str]) -> list[CellPart]:
    unit = read_unit(path)
    if unit.header.get("fingerprint") != fingerprint or list(unit.header["views"]) != list(views):
        raise DamagedUnit(f"{path.name} belongs to other records")
    parts, row, out = [], 0, 0
    for cell, definition, count, unreadable in unit.header.get("cells", ()):
        arrays = {name: values[row : row + count] for name, values in unit.arrays.items()}
        parts.append(
            CellPart(cell, definition, unit.rows[row : row + count], unit.excluded[out : out + unreadable], arrays)
        )
        row, out = row + count, out + unreadable
    if row != len(unit.rows) or out != len(unit.excluded):
        raise DamagedUnit(f"{path.name} is damaged: its cells do not add up to its images")
    return parts


def _joined(parts: Sequence[Field]) -> Field:
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate([np.asarray(part) for part in parts])
    return tuple(values for part in parts for values in part)


def _chosen(values: Field, places: np.ndarray) -> Field:
    return values[places] if isinstance(values, np.ndarray) else tuple(values[place] for place in places)
