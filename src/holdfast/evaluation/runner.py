"""The runner: workers make images, the model looks at them, finished units become files.

The unit of work is (cell, shard of images). Units that are already there are not done again, so a killed evaluation
goes on where it was; several processes on one file system share the units and need no lock.
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
from holdfast.evaluation.preprocessing import PreprocessingSteps
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
    """Is told how far the work is."""

    def looked_at(self, count: int) -> None:
        """So many more images were looked at."""

    def measured(self, cell: CellSpec, sums: np.ndarray | None) -> None:
        """A unit of a cell is on disk: what its images add up to, of a task with a running score."""


@dataclass(frozen=True)
class Work:
    """What is to be done, and where its results go.

    Attributes:
        plan: images and cells.
        folder: the record set's folder.
        fingerprint: of the record set; every unit carries it.
        seed: of corruptions and attacks.
        shard_size: images per unit.
        batch_size: images per forward pass; does not change results, but of models with int8 layers.
        attack_batch_size: images per attack.
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
        """All units, one shard after the other."""
        cells = range(len(self.plan.cells))
        return [(shard, cell) for shard in range(self.plan.shards(self.shard_size)) for cell in cells]

    def path(self, key: Key) -> Path:
        """The file of a unit."""
        return self.folder / unit_name(self.plan.cells[key[1]].name, key[0])


def finished_units(work: Work, views: Sequence[str], *, repair: bool, watcher: ProgressCallback) -> set[Key]:
    """The units that are on disk, checked; ``repair`` sets damaged ones aside, so that they are done again."""
    done = set()
    for key in work.units():
        path = work.path(key)
        if not path.exists():
            continue
        try:
            unit = finished_unit(work, key, views)
        except DamagedUnit as error:
            if repair:
                logger.warning("%s; kept as %s and measured again", error, set_aside(path).name)
            continue
        done.add(key)
        tell(watcher, work, key, unit)
    return done


def finished_unit(work: Work, key: Key, views: Sequence[str]) -> Unit:
    """A unit that is on disk; raises :class:`DamagedUnit` if it is another one, or not as it was written."""
    unit = read_unit(work.path(key))
    _check_origin(unit, work, key, views)
    return unit


def run_units(
    work: Work,
    keys: Sequence[Key],
    *,
    judge: NormalizedModel,
    steps: PreprocessingSteps,
    watcher: ProgressCallback,
    corruptors: Mapping[str, Corruptor] | None = None,
) -> None:
    """Measure the units and write each when it is complete."""
    jobs = [Job(shard, tuple(cell for s, cell in keys if s == shard)) for shard in dict.fromkeys(s for s, _ in keys)]
    chunks = Chunks(work.plan, jobs, steps=steps, seed=work.seed, shard_size=work.shard_size)
    loader = chunk_loader(chunks, workers=work.workers, pin=judge.device.type == "cuda")
    desk = UnitWriter(work, judge, watcher, corruptors or {})
    way_on = "what is recorded stays, and the same command goes on from it, with fewer --workers if need be"
    with worker_deaths(way_on=way_on), ended_workers(loader) as made:
        _look_at_all(made, desk)


def _look_at_all(loader: Iterable[Chunk | Failure], desk: "UnitWriter") -> None:
    work, batch = desk.work, list[Chunk]()
    batch_size = work.batch_size if work.plan.task.together else 1
    for chunk in _safely(loader):
        if desk.waits(work.plan.cells[chunk.cell]) or chunk.images is None:
            desk.keep(chunk)
            continue
        if batch and frames(batch) + frames([chunk]) > batch_size:
            desk.look(batch)
            batch = []
        batch.append(chunk)
    if batch:
        desk.look(batch)
    assert not desk.open, "every unit is complete when all chunks are through"


def _safely(loader: Iterable[Chunk | Failure]) -> Iterator[Chunk]:
    """The chunks; a worker's failure is one sentence."""
    for chunk in loader:
        if isinstance(chunk, Failure):
            raise HoldfastError(chunk.sentence)
        yield chunk


@dataclass
class _Open:
    """A unit that is being put together."""

    rows: list[int] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)
    parts: list[dict[str, Field]] = field(default_factory=list)
    images: list[Tensor] = field(default_factory=list)  # of those that wait for the whole shard
    targets: list[Any] = field(default_factory=list)  # theirs


class UnitWriter:
    """Where chunks become units."""

    def __init__(
        self, work: Work, judge: NormalizedModel, watcher: ProgressCallback, corruptors: Mapping[str, Corruptor]
    ) -> None:
        self.work, self.judge, self.watcher, self.corruptors = work, judge, watcher, corruptors
        self.task = work.plan.task
        self.open: dict[Key, _Open] = {}

    def look(self, chunks: list[Chunk]) -> None:
        """One forward pass over several chunks, of whatever cells."""
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
        """Whether images wait for the whole shard: answers then depend on which are in a batch with them."""
        return cell.attack is not None or (self.judge.by_batch and self.task.together)

    def keep(self, chunk: Chunk) -> None:
        """A chunk without images, or one that waits: at once, or when its shard is complete."""
        alone = chunk.images is not None and not self.task.together
        self._add(chunk, self._attacked(chunk.cell, chunk.rows, chunk.images, chunk.targets) if alone else None)

    def _answers(self, images: Tensor) -> Mapping[str, Any]:
        look = self.judge.look_padded if self.task.together else self.judge.look
        parts = [look(part) for part in images.split(self.work.batch_size)]
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
        self.watcher.looked_at(len(chunk.rows) + len(chunk.unreadable))
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
        arrays = _join_parts(found.parts, order, self.judge.views, fields=self.task.fields)
        header = {
            "cell": cell.name,
            "definition": cell.described,
            "shard": shard,
            "fingerprint": self.work.fingerprint,
            "views": list(self.judge.views),
        }
        unit = Unit(header, rows, np.sort(np.array(found.unreadable, dtype=np.int64)), arrays)
        try:
            write_unit(self.work.folder, unit)
        except OSError as error:
            raise HoldfastError(
                f"records cannot be written into {str(self.work.folder)!r} ({error.strerror}); "
                "what is there is complete, and the same command goes on from it"
            ) from error
        tell(self.watcher, self.work, key, unit)

    def _in_batches(self, number: int, found: _Open, order: np.ndarray) -> list[dict[str, Field]]:
        """A shard's images in their order, in batches of a fixed size: attacks and int8 layers round by it."""
        images, attacks = torch.cat(found.images), self.work.plan.cells[number].attack is not None
        frames = images.shape[1:-3].numel()
        size = self.work.attack_batch_size if attacks else max(1, self.work.batch_size // frames)
        batches = [order[start : start + size].tolist() for start in range(0, len(order), size)]
        look = self._attacked if attacks else self._seen
        return [
            look(number, [found.rows[i] for i in batch], images[batch], [found.targets[i] for i in batch])
            for batch in batches
        ]

    def _seen(
        self, number: int, rows: Sequence[int], images: Tensor | None, targets: Sequence[Any]
    ) -> dict[str, Field]:
        assert images is not None
        cell = self.work.plan.cells[number]
        flat = images.flatten(0, -4)  # n·F 3 H W
        repeats = len(flat) // len(rows) if cell.make.repeated else None
        return self.task.keep(self._answers(flat), targets, cell=cell, repeats=repeats)

    def _attacked(
        self, number: int, rows: Sequence[int], images: Tensor | None, targets: Sequence[Any]
    ) -> dict[str, Field]:
        assert images is not None
        cell, ids = self.work.plan.cells[number], [self.work.plan.ids[row] for row in rows]
        return attack_batch(
            self.judge,
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
    if not parts:  # not one image of the shard could be read
        return {field_name(view, name): np.empty(0, kind) for view in views for name, kind in fields.items()}
    return {name: _field([part[name] for part in parts], order) for name in parts[0]}


def _field(parts: Sequence[Field], order: np.ndarray) -> Field:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate([np.asarray(part) for part in parts])[order]
    values = [value for part in parts for value in part]
    return tuple(values[place] for place in order)


def _check_origin(unit: Unit, work: Work, key: Key, views: Sequence[str]) -> None:
    cell, rows = work.plan.cells[key[1]], work.plan.rows(key[0], work.shard_size)
    wanted = (work.fingerprint, cell.name, cell.described, key[0], list(views))
    found = tuple(unit.header.get(name) for name in ("fingerprint", "cell", "definition", "shard", "views"))
    if found != wanted:
        raise DamagedUnit(f"{work.path(key).name} was measured otherwise")
    if sorted([*unit.rows.tolist(), *unit.excluded.tolist()]) != list(rows):
        raise DamagedUnit(f"{work.path(key).name} is damaged: it does not hold the images of its shard")


def tell(watcher: ProgressCallback, work: Work, key: Key, unit: Unit) -> None:
    """How well the first view did, for the line that people watch."""
    plan, view = work.plan, unit.header["views"][0]
    cell: Cell = plan.cells[key[1]]
    running = getattr(plan.task, "running", None)
    if running is None or not len(unit.rows):
        watcher.measured(cell.spec, None)
        return
    fields = {name: unit.arrays[field_name(view, name)] for name in fields_of(unit, view)}
    header = {"cell": cell.name, **cell.described}
    # nobody asks for names here
    record = CellRecord(unit.rows, plan.truth[unit.rows], fields, header=header, task=plan.task.name)
    watcher.measured(cell.spec, running.sums(record))


def frames(chunks: Sequence[Chunk]) -> int:
    """How many images some chunks hold; those of films count one by one."""
    return sum(chunk.images.shape[:-3].numel() for chunk in chunks if chunk.images is not None)
