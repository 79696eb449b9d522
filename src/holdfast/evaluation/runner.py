"""Evaluation runner: workers make images, the model predicts them, and finished units are written to files.

The unit of work is (cell, shard of images). Units on disk are not measured again, so an interrupted evaluation
resumes where it stopped; several processes on one file system share the units and need no lock.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.evaluation.attack_cells import attack_batch
from holdfast.evaluation.loader import Chunk, Chunks, Failure, Job, chunk_loader, ended_workers
from holdfast.evaluation.plan import Cell, Plan
from holdfast.evaluation.preprocessing import Preprocessing
from holdfast.inference.normalized_model import NormalizedModel
from holdfast.models.corruption_model import Corruptor
from holdfast.records.cells import CellSpec
from holdfast.records.records import CellRecord
from holdfast.records.shard_files import (
    DamagedUnit,
    Field,
    Unit,
    field_name,
    fields_of,
    read_unit,
    set_aside,
    unit_name,
    write_unit,
)
from holdfast.runtime.signals import worker_deaths

logger = logging.getLogger(__name__)

Key = tuple[int, int]  # shard, number of the cell


class ProgressCallback(Protocol):
    """Receives the progress of a runner."""

    def advance_images(self, count: int) -> None:
        """Advance by this many images."""

    def finish_unit(self, cell: CellSpec, sums: np.ndarray | None) -> None:
        """Count a unit that was written to disk; ``sums`` are those of the task's running score, if it has one."""


@dataclass(frozen=True)
class Work:
    """Plan, output folder and settings of a runner.

    Attributes:
        plan: images and cells.
        folder: folder of the record set.
        fingerprint: fingerprint of the record set, stored in every unit.
        seed: seed of corruptions and attacks.
        shard_size: images per unit.
        batch_size: images per forward pass; changes results only of models with int8 layers.
        attack_batch_size: images per attack batch.
        workers: processes that make images.
    """

    plan: Plan
    folder: Path
    fingerprint: str
    seed: int
    shard_size: int
    batch_size: int
    attack_batch_size: int
    workers: int

    def units(self) -> list[Key]:
        """Keys of all units, shard by shard."""
        cells = range(len(self.plan.cells))
        return [(shard, cell) for shard in range(self.plan.shards(self.shard_size)) for cell in cells]

    def path(self, key: Key) -> Path:
        """Path of a unit's file."""
        return self.folder / unit_name(self.plan.cells[key[1]].name, key[0])


def finished_units(work: Work, views: Sequence[str], *, repair: bool, progress: ProgressCallback) -> set[Key]:
    """Keys of the valid units on disk; ``repair`` sets damaged ones aside, so that they are measured again."""
    done = set()
    for key in work.units():
        path = work.path(key)
        if not path.exists():
            continue
        try:
            unit = finished_unit(work, key, views)
        except DamagedUnit as error:
            if repair:
                logger.warning("%s; kept as %s, measuring again", error, set_aside(path).name)
            continue
        done.add(key)
        report_unit(progress, work, key, unit)
    return done


def finished_unit(work: Work, key: Key, views: Sequence[str]) -> Unit:
    """Read a unit; raises :class:`DamagedUnit` if it belongs to another evaluation or its content is damaged."""
    unit = read_unit(work.path(key))
    _check_origin(unit, work, key, views)
    return unit


def run_units(
    work: Work,
    keys: Sequence[Key],
    *,
    normalized_model: NormalizedModel,
    steps: Preprocessing,
    progress: ProgressCallback,
    corruptors: Mapping[str, Corruptor] | None = None,
) -> None:
    """Measure units and write each one as soon as it is complete."""
    jobs = [Job(shard, tuple(cell for s, cell in keys if s == shard)) for shard in dict.fromkeys(s for s, _ in keys)]
    chunks = Chunks(work.plan, jobs, steps=steps, seed=work.seed, shard_size=work.shard_size)
    loader = chunk_loader(chunks, workers=work.workers, pin=normalized_model.device.type == "cuda")
    writer = UnitWriter(work, normalized_model, progress, corruptors or {})
    way_on = "finished units are kept: run the same command again to resume, with fewer --workers if memory is short"
    with worker_deaths(way_on=way_on), ended_workers(loader) as made:
        _predict_all(made, writer)


def _predict_all(loader: Iterable[Chunk | Failure], writer: "UnitWriter") -> None:
    work, batch = writer.work, list[Chunk]()
    batch_size = work.batch_size if work.plan.task.batched else 1
    for chunk in _safely(loader):
        if writer.waits(work.plan.cells[chunk.cell]) or chunk.images is None:
            writer.keep(chunk)
            continue
        if batch and frames(batch) + frames([chunk]) > batch_size:
            writer.predict_batch(batch)
            batch = []
        batch.append(chunk)
    if batch:
        writer.predict_batch(batch)
    assert not writer.open, "every unit is complete when all chunks are through"


def _safely(loader: Iterable[Chunk | Failure]) -> Iterator[Chunk]:
    """Yield the chunks; raise a worker's failure as an error of one sentence."""
    for chunk in loader:
        if isinstance(chunk, Failure):
            raise HoldfastError(chunk.sentence)
        yield chunk


@dataclass
class _Open:
    """A unit that is not complete yet."""

    rows: list[int] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)
    parts: list[dict[str, Field]] = field(default_factory=list)
    images: list[Tensor] = field(default_factory=list)  # images that wait for the whole shard
    targets: list[Any] = field(default_factory=list)  # targets of these images


class UnitWriter:
    """Predicts chunks, collects their fields and writes complete units."""

    def __init__(
        self,
        work: Work,
        normalized_model: NormalizedModel,
        progress: ProgressCallback,
        corruptors: Mapping[str, Corruptor],
    ) -> None:
        self.work, self.normalized_model, self.progress, self.corruptors = work, normalized_model, progress, corruptors
        self.task = work.plan.task
        self.open: dict[Key, _Open] = {}

    def predict_batch(self, chunks: list[Chunk]) -> None:
        """Predict several chunks, of any cells, in one forward pass."""
        images = [chunk.images.flatten(0, -4) for chunk in chunks if chunk.images is not None]  # n·F 3 H W
        counts = [len(part) for part in images]
        answers = self._answers(torch.cat(images) if len(images) > 1 else images[0])
        ends = np.cumsum([0, *counts])
        for number, chunk in enumerate(chunks):
            mine = {view: values[ends[number] : ends[number + 1]] for view, values in answers.items()}
            cell = self.work.plan.cells[chunk.cell]
            repeats = counts[number] // len(chunk.rows) if cell.make.repeated else None
            self._add(chunk, self.task.keep(mine, chunk.targets, cell=cell, repeats=repeats))

    def waits(self, cell: Cell) -> bool:
        """Whether images wait for the whole shard, because predictions depend on the batch that they are in."""
        return cell.attack is not None or (self.normalized_model.by_batch and self.task.batched)

    def keep(self, chunk: Chunk) -> None:
        """Keep a chunk without images, or one that waits until its shard is complete."""
        alone = chunk.images is not None and not self.task.batched
        self._add(chunk, self._attack(chunk.cell, chunk.rows, chunk.images, chunk.targets) if alone else None)

    def _answers(self, images: Tensor) -> Mapping[str, Any]:
        predict = (
            self.normalized_model.predict_bytes_padded if self.task.batched else self.normalized_model.predict_bytes
        )
        parts = [predict(part) for part in images.split(self.work.batch_size)]
        return (
            parts[0] if len(parts) == 1 else {view: _concatenate_parts([p[view] for p in parts]) for view in parts[0]}
        )

    def _add(self, chunk: Chunk, part: dict[str, Field] | None) -> None:
        key = (chunk.shard, chunk.cell)
        unit = self.open.setdefault(key, _Open())
        unit.rows += chunk.rows
        unit.unreadable += [row for row, _ in chunk.unreadable]
        if part is not None:
            unit.parts.append(part)
        elif chunk.images is not None:
            unit.images.append(chunk.images)
            unit.targets += chunk.targets
        self.progress.advance_images(len(chunk.rows) + len(chunk.unreadable))
        if len(unit.rows) + len(unit.unreadable) == len(self.work.plan.rows(chunk.shard, self.work.shard_size)):
            self._finish(key, self.open.pop(key))

    def _finish(self, key: Key, found: _Open) -> None:
        shard, number = key
        order = np.argsort(found.rows)
        rows = np.array(found.rows, dtype=np.int64)[order]
        cell = self.work.plan.cells[number]
        if found.images:
            found.parts = self._in_batches(number, found, order)
            order = np.arange(len(rows))
        arrays = _join_parts(found.parts, order, self.normalized_model.views, fields=self.task.fields)
        header = {
            "cell": cell.name,
            "definition": cell.record_definition,
            "shard": shard,
            "fingerprint": self.work.fingerprint,
            "views": list(self.normalized_model.views),
        }
        unit = Unit(header, rows, np.sort(np.array(found.unreadable, dtype=np.int64)), arrays)
        try:
            write_unit(self.work.folder, unit)
        except OSError as error:
            raise HoldfastError(
                f"cannot write records to {str(self.work.folder)!r} ({error.strerror}); "
                "finished units are kept: run the same command again to resume"
            ) from error
        report_unit(self.progress, self.work, key, unit)

    def _in_batches(self, number: int, found: _Open, order: np.ndarray) -> list[dict[str, Field]]:
        """Process a shard's images in order, in batches of a fixed size, on which attacks and int8 layers depend."""
        images, attacks = torch.cat(found.images), self.work.plan.cells[number].attack is not None
        frames = images.shape[1:-3].numel()
        size = self.work.attack_batch_size if attacks else max(1, self.work.batch_size // frames)
        batches = [order[start : start + size].tolist() for start in range(0, len(order), size)]
        process = self._attack if attacks else self._predict
        return [
            process(number, [found.rows[i] for i in batch], images[batch], [found.targets[i] for i in batch])
            for batch in batches
        ]

    def _predict(
        self, number: int, rows: Sequence[int], images: Tensor | None, targets: Sequence[Any]
    ) -> dict[str, Field]:
        assert images is not None
        cell = self.work.plan.cells[number]
        flat = images.flatten(0, -4)  # n·F 3 H W
        repeats = len(flat) // len(rows) if cell.make.repeated else None
        return self.task.keep(self._answers(flat), targets, cell=cell, repeats=repeats)

    def _attack(
        self, number: int, rows: Sequence[int], images: Tensor | None, targets: Sequence[Any]
    ) -> dict[str, Field]:
        assert images is not None
        cell, ids = self.work.plan.cells[number], [self.work.plan.ids[row] for row in rows]
        return attack_batch(
            self.normalized_model,
            cell,
            images,
            targets,
            task=self.task,
            ids=ids,
            seed=self.work.seed,
            corruptor=self.corruptors.get(cell.name),
        )


def _concatenate_parts(parts: Sequence[Any]) -> Any:
    return torch.cat(list(parts)) if isinstance(parts[0], Tensor) else [each for part in parts for each in part]


def _join_parts(
    parts: list[dict[str, Field]], order: np.ndarray, views: Sequence[str], *, fields: Mapping[str, Any]
) -> dict[str, Field]:
    if not parts:  # no image of the shard could be read
        return {field_name(view, name): np.empty(0, kind) for view in views for name, kind in fields.items()}
    return {name: _field([part[name] for part in parts], order) for name in parts[0]}


def _field(parts: Sequence[Field], order: np.ndarray) -> Field:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate([np.asarray(part) for part in parts])[order]
    values = [value for part in parts for value in part]
    return tuple(values[place] for place in order)


def _check_origin(unit: Unit, work: Work, key: Key, views: Sequence[str]) -> None:
    cell, rows = work.plan.cells[key[1]], work.plan.rows(key[0], work.shard_size)
    wanted = (work.fingerprint, cell.name, cell.record_definition, key[0], list(views))
    found = tuple(unit.header.get(name) for name in ("fingerprint", "cell", "definition", "shard", "views"))
    if found != wanted:
        raise DamagedUnit(f"{work.path(key).name} was measured with other settings")
    if sorted([*unit.rows.tolist(), *unit.excluded.tolist()]) != list(rows):
        raise DamagedUnit(f"{work.path(key).name} is damaged: it does not hold the images of its shard")


def report_unit(progress: ProgressCallback, work: Work, key: Key, unit: Unit) -> None:
    """Report a finished unit to the progress display, with the running score of the first view."""
    plan, view = work.plan, unit.header["views"][0]
    cell: Cell = plan.cells[key[1]]
    running = getattr(plan.task, "running", None)
    if running is None or not len(unit.rows):
        progress.finish_unit(cell.spec, None)
        return
    fields = {name: unit.arrays[field_name(view, name)] for name in fields_of(unit, view)}
    header = {"cell": cell.name, **cell.record_definition}
    # row numbers serve as ids, because running scores do not use names
    record = CellRecord(unit.rows, plan.truth[unit.rows], fields, header=header, task=plan.task.name)
    progress.finish_unit(cell.spec, running.sums(record))


def frames(chunks: Sequence[Chunk]) -> int:
    """Number of images in some chunks; every frame of a film counts."""
    return sum(chunk.images.shape[:-3].numel() for chunk in chunks if chunk.images is not None)
