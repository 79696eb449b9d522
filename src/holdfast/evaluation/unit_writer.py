"""``UnitWriter``: collects the fields of chunks and writes each unit as soon as it is complete."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.evaluation.loader import Chunk
from holdfast.evaluation.predict_chunks import ChunkPredictor
from holdfast.evaluation.work import Key, ProgressCallback, Work, cannot_write, report_unit
from holdfast.records.round_files import CellPart, Measured
from holdfast.records.shard_files import Field, Unit, field_name, write_unit


@dataclass
class _Open:
    """A unit that is not complete yet."""

    rows: list[int] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)
    parts: list[dict[str, Field]] = field(default_factory=list)
    images: list[Tensor] = field(default_factory=list)  # images that wait for the whole shard
    targets: list[Any] = field(default_factory=list)  # targets of these images


class UnitWriter:
    """Collects the fields of chunks and writes complete units; ``known`` are images that were measured before."""

    def __init__(
        self, work: Work, predictor: ChunkPredictor, progress: ProgressCallback, known: Measured | None = None
    ) -> None:
        self.work, self.predictor, self.progress, self.known = work, predictor, progress, known
        self.open: dict[Key, _Open] = {}

    def predict_batch(self, chunks: list[Chunk]) -> None:
        """Predict several chunks, of any cells, in one forward pass."""
        for chunk, part in self.predictor.predict_batch(chunks):
            self.add(chunk, part)

    def keep(self, chunk: Chunk) -> None:
        """Keep a chunk without images, or one that waits until its shard is complete."""
        self.add(chunk, self.predictor.predict_alone(chunk))

    def add(self, chunk: Chunk, part: dict[str, Field] | None) -> None:
        """Add a chunk with its fields; without fields its images wait until the shard is complete."""
        key = (chunk.shard, chunk.cell)
        unit = self.open.get(key) or self.open.setdefault(key, self.begin(key))
        unit.rows += chunk.rows
        unit.unreadable += [row for row, _ in chunk.unreadable]
        if part is not None:
            unit.parts.append(part)
        elif chunk.images is not None:
            unit.images.append(chunk.images)
            unit.targets += chunk.targets
        self.progress.advance_images(len(chunk.rows) + len(chunk.unreadable))
        self.finish_if_complete(key, unit)

    def begin(self, key: Key) -> _Open:
        """A unit with what was measured before."""
        part = known_part(self.work, key, self.known)
        if part is None:
            return _Open()
        return _Open(part.rows.tolist(), part.excluded.tolist(), [dict(part.arrays)] if len(part.rows) else [])

    def finish_known(self, key: Key) -> bool:
        """Write a unit of which every image was measured before; returns whether it is."""
        unit = self.begin(key)
        self.finish_if_complete(key, unit)
        return self.is_complete(key, unit)

    def is_complete(self, key: Key, unit: _Open) -> bool:
        """Whether a unit has all its images."""
        return len(unit.rows) + len(unit.unreadable) == len(self.work.plan.rows(key[0], self.work.shard_size))

    def finish_if_complete(self, key: Key, unit: _Open) -> None:
        """Write a unit that has all its images."""
        if self.is_complete(key, unit):
            self.open.pop(key, None)
            self._finish(key, unit)

    def _finish(self, key: Key, found: _Open) -> None:
        shard, number = key
        order = np.argsort(found.rows)
        rows = np.array(found.rows, dtype=np.int64)[order]
        cell = self.work.plan.cells[number]
        if found.images:
            images, targets = torch.cat(found.images)[torch.from_numpy(order)], [found.targets[i] for i in order]
            found.parts = self.predictor.predict_shard(number, rows.tolist(), images, targets)
            order = np.arange(len(rows))
        arrays = join_fields(found.parts, order, self.predictor.views, fields=self.work.plan.task.scoring.fields)
        header = {
            "cell": cell.name,
            "definition": cell.record_definition,
            "shard": shard,
            "fingerprint": self.work.fingerprint,
            "views": list(self.predictor.views),
        }
        unit = Unit(header, rows, np.sort(np.array(found.unreadable, dtype=np.int64)), arrays)
        with cannot_write(self.work.folder):
            write_unit(self.work.folder, unit)
        report_unit(self.progress, self.work, key, unit)


def known_part(work: Work, key: Key, known: Measured | None) -> CellPart | None:
    """What round files hold of a unit; None if nothing."""
    shard, number = key
    cell = work.plan.cells[number]
    part = known.of(cell.name) if known is not None else None
    if part is None or part.definition != cell.record_definition:
        return None
    return part.only(np.array(work.plan.rows(shard, work.shard_size)))


def join_fields(
    parts: list[dict[str, Field]], order: np.ndarray, views: Sequence[str], *, fields: Mapping[str, Any]
) -> dict[str, Field]:
    """Join the fields of several chunks, with their images in this order."""
    if not parts:  # no image of the shard could be read
        return {field_name(view, name): np.empty(0, kind) for view in views for name, kind in fields.items()}
    return {name: _field([part[name] for part in parts], order) for name in parts[0]}


def _field(parts: Sequence[Field], order: np.ndarray) -> Field:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate([np.asarray(part) for part in parts])[order]
    values = [value for part in parts for value in part]
    return tuple(values[place] for place in order)
