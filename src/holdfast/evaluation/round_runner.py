"""Runner of rounds: workers make the images of one part after the other, and each complete part becomes a file.

Workers go on with the next round while the last one is judged; what they made is dropped if no further round is needed.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from torch.utils.data import IterableDataset

from holdfast.evaluation.cell_images import WorkerCache
from holdfast.evaluation.loader import (
    Chunk,
    Failure,
    chunk_loader,
    chunk_size,
    ended_workers,
    make_chunks,
    or_failure,
    this_worker,
)
from holdfast.evaluation.normalized_model import NormalizedModel
from holdfast.evaluation.plan import Plan
from holdfast.evaluation.predict_chunks import ChunkPredictor, predict_chunks
from holdfast.evaluation.preprocessing import Preprocessing
from holdfast.evaluation.rounds import Part, Pick, Rounds
from holdfast.evaluation.setup import PreparedEvaluation
from holdfast.evaluation.unit_writer import join_fields
from holdfast.evaluation.work import Key, ProgressCallback, Work
from holdfast.records.round_files import CellPart, Measured
from holdfast.records.shard_files import Field
from holdfast.runtime.signals import worker_deaths

WAY_ON = "finished parts are kept: run the same command again to resume, with fewer --workers if memory is short"


@dataclass(frozen=True, eq=False)
class PartStream:
    """Parts of all further rounds, made anew in every worker; each process takes its share.

    Attributes:
        rounds: the rounds.
        goals: numbers of the cells of every goal that is not reached.
        done: what is measured, by cell and row.
        rank: number of this process.
        processes: number of processes, which take turns.
    """

    rounds: Rounds
    goals: Sequence[Sequence[int]]
    done: np.ndarray
    rank: int = 0
    processes: int = 1

    def __iter__(self) -> Iterator[Part]:
        for part in self.rounds.parts(self.goals, self.done):
            if part.number % self.processes == self.rank:
                yield part


class PartChunks(IterableDataset[Chunk | Failure]):
    """The chunks of all parts, or in a worker its share of them."""

    def __init__(
        self, plan: Plan, parts: PartStream | Sequence[Part], clean: int | None, *, steps: Preprocessing, seed: int
    ) -> None:
        self.plan, self.parts, self.clean, self.steps, self.seed = plan, parts, clean, steps, seed

    def __iter__(self) -> Iterator[Chunk | Failure]:
        yield from or_failure(self._all_chunks())

    def _all_chunks(self) -> Iterator[Chunk]:
        number, workers = this_worker()
        size, turn = chunk_size(self.plan, self.steps), 0
        for part in self.parts:
            for pick in _pieces(part.picks, size):
                if turn % workers == number:
                    clean_too = () if self.steps.same_for_clean else frozenset(pick.clean)
                    cache = WorkerCache(self.plan, self.steps, self.seed, clean_too)
                    yield from make_chunks(part.number, pick.cell, pick.rows, cache)
                    if pick.clean:
                        assert self.clean is not None
                        yield from make_chunks(part.number, self.clean, pick.clean, cache)
                turn += 1


def _pieces(picks: Sequence[Pick], size: int) -> Iterator[Pick]:
    for pick in picks:
        for start in range(0, len(pick.rows), size):
            rows = pick.rows[start : start + size]
            yield Pick(pick.cell, rows, tuple(row for row in rows if row in set(pick.clean)))


@dataclass
class _OpenPart:
    """A part that is not complete yet: rows, unreadable rows and fields by cell, and how many images are missing."""

    part: Part
    missing: int
    rows: dict[int, list[int]] = field(default_factory=dict)
    unreadable: dict[int, list[int]] = field(default_factory=dict)
    fields: dict[int, list[dict[str, Field]]] = field(default_factory=dict)


def run_parts(
    work: Work,
    parts: PartStream | Sequence[Part],
    clean: int | None,
    *,
    normalized_model: NormalizedModel,
    steps: Preprocessing,
    progress: ProgressCallback,
) -> Generator[tuple[Part, list[CellPart]], None, None]:
    """Measure parts, and yield each when it is complete; nothing is written."""
    chunks = PartChunks(work.plan, parts, clean, steps=steps, seed=work.seed)
    loader = chunk_loader(chunks, workers=work.workers, pin=normalized_model.device.type == "cuda")
    predictor, coming = ChunkPredictor(work, normalized_model), iter(parts)
    open_parts: dict[int, _OpenPart] = {}
    with worker_deaths(way_on=WAY_ON), ended_workers(loader) as made, closing(predict_chunks(made, predictor)) as found:
        for chunk, fields in found:
            while chunk.shard not in open_parts:
                part = next(coming)
                open_parts[part.number] = _OpenPart(part, part.passes)
            mine = open_parts[chunk.shard]
            _add(mine, chunk, fields)
            progress.advance_images(len(chunk.rows) + len(chunk.unreadable))
            if not mine.missing:
                del open_parts[chunk.shard]
                yield mine.part, _cell_parts(work, mine, normalized_model.views)


def _add(part: _OpenPart, chunk: Chunk, fields: dict[str, Field] | None) -> None:
    part.rows.setdefault(chunk.cell, []).extend(chunk.rows)
    part.unreadable.setdefault(chunk.cell, []).extend(row for row, _ in chunk.unreadable)
    if fields is not None:
        part.fields.setdefault(chunk.cell, []).append(fields)
    part.missing -= len(chunk.rows) + len(chunk.unreadable)


def _cell_parts(work: Work, part: _OpenPart, views: Sequence[str]) -> list[CellPart]:
    found = []
    for number, rows in sorted(part.rows.items()):
        cell, order = work.plan.cells[number], np.argsort(rows)
        arrays = join_fields(part.fields.get(number, []), order, views, fields=work.plan.task.scoring.fields)
        unreadable = np.sort(np.array(part.unreadable[number], dtype=np.int64))
        sorted_rows = np.array(rows, dtype=np.int64)[order]
        found.append(CellPart(cell.name, cell.record_definition, sorted_rows, unreadable, arrays))
    return found


class MeasureParts(Protocol):
    """Measures the parts of one round, and yields what was measured of each."""

    def __call__(self, parts: Sequence[Part], progress: ProgressCallback) -> Iterator[list[CellPart]]:
        """Measure these parts."""
        ...


@contextmanager
def parts_here(
    prepared: PreparedEvaluation,
    rounds: Rounds,
    goals: Sequence[Sequence[int]],
    done: np.ndarray,
    progress: ProgressCallback,
) -> Iterator[MeasureParts]:
    """Measure this process's share of the parts; its workers go on with the next round meanwhile."""
    rank, count = prepared.processes.rank, prepared.processes.count
    found = run_parts(
        prepared.work,
        PartStream(rounds, goals, done, rank, count),
        rounds.clean,
        normalized_model=prepared.normalized_model,
        steps=prepared.steps,
        progress=progress,
    )
    ready: dict[int, list[CellPart]] = {}

    def measure(parts: Sequence[Part], progress: ProgressCallback) -> Iterator[list[CellPart]]:
        for wanted in parts:
            if wanted.number % count == rank:
                while wanted.number not in ready:
                    part, cells = next(found)
                    ready[part.number] = cells
                yield ready.pop(wanted.number)

    with closing(found):
        yield measure


def mark_parts(done: np.ndarray, work: Work, parts: Iterable[CellPart]) -> None:
    """Mark the images of some parts in ``done``, (cells of the plan, images)."""
    numbers = {cell.name: number for number, cell in enumerate(work.plan.cells)}
    for part in parts:
        if part.cell in numbers:
            done[numbers[part.cell], part.all_rows] = True


def done_pairs(work: Work, measured: Measured, units: Iterable[Key]) -> np.ndarray:
    """Which images are measured in which cells, in round files and finished units: (cells of the plan, images)."""
    done = np.zeros((len(work.plan.cells), len(work.plan.ids)), dtype=bool)
    for shard, cell in units:
        done[cell, list(work.plan.rows(shard, work.shard_size))] = True
    for parts in measured.parts.values():
        mark_parts(done, work, parts)
    return done
