"""The runner: workers make images, the model looks at them, finished units become files.

The unit of work is (cell, shard of images). Units that are already there are not done again, so a killed evaluation
goes on where it was; several processes on one file system share the units and need no lock.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.evaluation.attacking import attacked
from holdfast.evaluation.cells import Plan
from holdfast.evaluation.judge import Judge, scored
from holdfast.evaluation.loader import Chunk, Failure, Job, Production, chunk_loader
from holdfast.records.units import (
    FIELDS,
    DamagedUnit,
    Unit,
    field_name,
    read_unit,
    set_aside,
    unit_name,
    write_unit,
)

logger = logging.getLogger(__name__)

Key = tuple[int, int]  # shard, number of the cell


class Watcher(Protocol):
    """Is told how far the work is."""

    def looked_at(self, count: int) -> None:
        """So many more images were looked at."""

    def finished(self, cell: str, *, right: float, count: int) -> None:
        """A unit of a cell is on disk: how many of its images are right."""


@dataclass(frozen=True)
class Work:
    """What is to be done, and where its results go.

    Attributes:
        plan: images and cells.
        folder: the record set's folder.
        fingerprint: of the record set; every unit carries it.
        seed: of corruptions and attacks.
        shard_size: images per unit.
        batch_size: images per forward pass; does not change results.
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


def finished_units(work: Work, views: Sequence[str], *, repair: bool, watcher: Watcher) -> set[Key]:
    """The units that are on disk, checked; ``repair`` sets damaged ones aside, so that they are done again."""
    done = set()
    for key in work.units():
        path = work.path(key)
        if not path.exists():
            continue
        try:
            unit = read_unit(path)
            _check_origin(unit, work, key, views)
        except DamagedUnit as error:
            if repair:
                logger.warning("%s; kept as %s and measured again", error, set_aside(path).name)
            continue
        done.add(key)
        _tell(watcher, work, key, unit)
    return done


def run_units(work: Work, keys: Sequence[Key], *, judge: Judge, steps: Any, watcher: Watcher) -> None:
    """Measure the units and write each when it is complete."""
    jobs = [Job(shard, tuple(cell for s, cell in keys if s == shard)) for shard in dict.fromkeys(s for s, _ in keys)]
    production = Production(work.plan, jobs, steps=steps, seed=work.seed, shard_size=work.shard_size)
    loader = chunk_loader(production, workers=work.workers, pin=judge.device.type == "cuda")
    desk = _Desk(work, judge, watcher)
    batch: list[Chunk] = []
    for chunk in _safely(loader):
        if work.plan.cells[chunk.cell].how == "attacked" or chunk.images is None:
            desk.keep(chunk)
            continue
        if batch and _count(batch) + _count([chunk]) > work.batch_size:
            desk.look(batch)
            batch = []
        batch.append(chunk)
    if batch:
        desk.look(batch)
    assert not desk.open, "every unit is complete when all chunks are through"


def _safely(loader: Iterable[Chunk | Failure]) -> Iterator[Chunk]:
    """The chunks; a worker's failure or death is one sentence."""
    try:
        for chunk in loader:
            if isinstance(chunk, Failure):
                raise HoldfastError(chunk.sentence)
            yield chunk
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise HoldfastError(
            "a worker died, most likely for want of memory; what is recorded stays, and the same command goes on "
            "from it, with fewer --workers if need be"
        ) from error


@dataclass
class _Open:
    """A unit that is being put together."""

    rows: list[int] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)
    parts: list[dict[str, np.ndarray]] = field(default_factory=list)
    images: list[Tensor] = field(default_factory=list)  # of attacks, which see whole shards


class _Desk:
    """Where chunks become units."""

    def __init__(self, work: Work, judge: Judge, watcher: Watcher) -> None:
        self.work, self.judge, self.watcher = work, judge, watcher
        self.open: dict[Key, _Open] = {}

    def look(self, chunks: list[Chunk]) -> None:
        """One forward pass over several chunks, of whatever cells."""
        images = [chunk.images.flatten(0, -4) for chunk in chunks if chunk.images is not None]  # n·F 3 H W
        counts = [len(part) for part in images]
        logits = self._logits(torch.cat(images) if len(images) > 1 else images[0])
        ends = np.cumsum(counts)[:-1]
        split = {view: np.split(values, ends) for view, values in logits.items()}
        for number, chunk in enumerate(chunks):
            mine = {view: values[number] for view, values in split.items()}
            cell = self.work.plan.cells[chunk.cell]
            repeats = counts[number] // len(chunk.rows) if cell.several else None
            self._add(chunk, scored(mine, self.work.plan.targets[chunk.rows], cell, repeats=repeats))

    def keep(self, chunk: Chunk) -> None:
        """A chunk without images, or one to be attacked when its shard is complete."""
        self._add(chunk, None)

    def _logits(self, images: Tensor) -> dict[str, np.ndarray]:
        parts = [self.judge.logits(part) for part in images.split(self.work.batch_size)]
        return {view: np.concatenate([part[view] for part in parts]) for view in self.judge.views}

    def _add(self, chunk: Chunk, part: dict[str, np.ndarray] | None) -> None:
        key = (chunk.shard, chunk.cell)
        unit = self.open.setdefault(key, _Open())
        unit.rows += chunk.rows
        unit.unreadable += [row for row, _ in chunk.unreadable]
        if part is not None:
            unit.parts.append(part)
        elif chunk.images is not None:
            unit.images.append(chunk.images)
        self.watcher.looked_at(len(chunk.rows) + len(chunk.unreadable))
        if len(unit.rows) + len(unit.unreadable) == len(self.work.plan.rows(chunk.shard, self.work.shard_size)):
            self._finish(key, self.open.pop(key))

    def _finish(self, key: Key, found: _Open) -> None:
        shard, number = key
        order = np.argsort(found.rows)
        rows = np.array(found.rows, dtype=np.int64)[order]
        if found.images:
            arrays = self._attacked(number, rows, torch.cat(found.images)[torch.from_numpy(order)])
        else:
            arrays = _joined(found.parts, order, self.judge.views)
        cell = self.work.plan.cells[number]
        header = {
            "cell": cell.name,
            "definition": dict(cell.definition),
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
        _tell(self.watcher, self.work, key, unit)

    def _attacked(self, number: int, rows: np.ndarray, images: Tensor) -> dict[str, np.ndarray]:
        ids = [self.work.plan.ids[row] for row in rows]
        targets = self.work.plan.targets[rows]
        size = self.work.attack_batch_size
        cell = self.work.plan.cells[number]
        return attacked(self.judge, cell, images, targets, ids=ids, seed=self.work.seed, batch_size=size)


def _joined(parts: list[dict[str, np.ndarray]], order: np.ndarray, views: Sequence[str]) -> dict[str, np.ndarray]:
    if not parts:  # not one image of the shard could be read
        return {field_name(view, name): np.empty(0, kind) for view in views for name, kind in FIELDS.items()}
    return {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}


def _check_origin(unit: Unit, work: Work, key: Key, views: Sequence[str]) -> None:
    cell, rows = work.plan.cells[key[1]], work.plan.rows(key[0], work.shard_size)
    wanted = (work.fingerprint, cell.name, dict(cell.definition), key[0], list(views))
    found = tuple(unit.header.get(name) for name in ("fingerprint", "cell", "definition", "shard", "views"))
    if found != wanted:
        raise DamagedUnit(f"{work.path(key).name} was measured otherwise")
    if sorted([*unit.rows.tolist(), *unit.excluded.tolist()]) != list(rows):
        raise DamagedUnit(f"{work.path(key).name} is damaged: it does not hold the images of its shard")


def _tell(watcher: Watcher, work: Work, key: Key, unit: Unit) -> None:
    predictions = unit.arrays[field_name(unit.header["views"][0], "predictions")]
    targets = work.plan.targets[unit.rows].reshape(-1, *(1,) * (predictions.ndim - 1))
    right = (predictions == targets).reshape(len(predictions), -1).mean(axis=1).sum() if len(predictions) else 0.0
    watcher.finished(work.plan.cells[key[1]].name, right=float(right), count=len(predictions))


def _count(chunks: list[Chunk]) -> int:
    return sum(chunk.images.shape[:-3].numel() for chunk in chunks if chunk.images is not None)
