"""Workers read, prepare and corrupt images while the model runs.

Every worker owns some rows of each shard: it decodes them once, keeps them, and hands out one cell after the other.
All draws are keyed by image id, so nothing here depends on how many workers there are.
"""

import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from holdfast.corruptions import corrupt_batch, keyed
from holdfast.corruptions.sequences import perturb
from holdfast.data.source import UnreadableImage
from holdfast.errors import HoldfastError
from holdfast.evaluation.cells import Cell, Plan
from holdfast.evaluation.protocol import Pixels, Preprocessing, finished, protocol_image, sequence_image

# images that travel from a worker together: few enough for the 64 MB of shared memory that containers have
LARGEST_CHUNK, LARGEST_BYTES = 64, 2_500_000


@dataclass(frozen=True)
class Job:
    """One shard and the cells of it that are still to do, by number."""

    shard: int
    cells: tuple[int, ...]


class Chunk(NamedTuple):
    """Some images of one unit as the model gets them; ``images`` is uint8, (n, 3, H, W) or (n, F, 3, H, W)."""

    shard: int
    cell: int
    rows: list[int]
    images: Tensor | None
    unreadable: list[tuple[int, str]]  # row and sentence


@dataclass
class _Pictures:
    """The rows of one chunk, prepared once for all cells that start from the same source."""

    rows: Sequence[int]
    prepared: dict[tuple[int, str], tuple[list[int], list[Pixels], list[tuple[int, str]]]] = field(default_factory=dict)


class Failure(NamedTuple):
    """What a worker could not do; an exception would bring its traceback along."""

    sentence: str


class Production(IterableDataset[Chunk | Failure]):
    """All chunks of all jobs, or a worker's share of them."""

    def __init__(self, plan: Plan, jobs: Sequence[Job], *, steps: Preprocessing, seed: int, shard_size: int) -> None:
        self.plan, self.jobs, self.steps = plan, tuple(jobs), steps
        self.seed, self.shard_size = seed, shard_size

    def __iter__(self) -> Iterator[Chunk | Failure]:
        try:
            yield from self._all_chunks()
        except HoldfastError as error:
            yield Failure(str(error))

    def _all_chunks(self) -> Iterator[Chunk]:
        info = get_worker_info()
        number, workers = (info.id, info.num_workers) if info is not None else (0, 1)
        for job in self.jobs:
            rows = self.plan.rows(job.shard, self.shard_size)
            size = min(_chunk_size(self.steps), -(-len(rows) // workers))
            chunks = [rows[start : start + size] for start in range(0, len(rows), size)]
            mine = [_Pictures(chunk) for chunk in chunks[number::workers]]
            for cell in job.cells:
                for pictures in mine:
                    yield from self._chunks(job.shard, cell, pictures)

    def _chunks(self, shard: int, number: int, pictures: _Pictures) -> Iterator[Chunk]:
        cell = self.plan.cells[number]
        if cell.how == "stored":
            yield self._stored(shard, number, pictures.rows)
        elif cell.how == "film":
            yield from (self._film(shard, number, row) for row in pictures.rows)
        elif cell.how == "sequence":
            yield from self._sequence(shard, number, pictures)
        else:
            rows, images, unreadable = self._prepared(pictures, cell)
            if cell.how == "corrupted":
                images = self._corrupted(cell, rows, images)
            yield Chunk(shard, number, rows, self._stack(images, corrupted=cell.how == "corrupted"), unreadable)

    def _corrupted(self, cell: Cell, rows: list[int], images: list[Pixels]) -> list[Pixels]:
        ids = [self.plan.ids[row] for row in rows]
        preset = self.steps.preset
        return corrupt_batch(images, cell.kind, ids=ids, severity=cell.severity, preset=preset, seed=self.seed)

    def _sequence(self, shard: int, number: int, pictures: _Pictures) -> Iterator[Chunk]:
        cell = self.plan.cells[number]
        rows, images, unreadable = self._prepared(pictures, cell)
        for row, image in zip(rows, images, strict=True):
            draws = keyed(self.seed, self.plan.ids[row], f"{cell.kind} sequence", 1)
            frames = perturb(image, cell.kind, preset=self.steps.preset, rng=draws)
            yield Chunk(shard, number, [row], self._film_tensor(frames), [])
        if unreadable:
            yield Chunk(shard, number, [], None, unreadable)

    def _prepared(self, pictures: _Pictures, cell: Cell) -> tuple[list[int], list[Pixels], list[tuple[int, str]]]:
        form = cell.kind if cell.how == "sequence" and self.steps.preset == "tiny" else cell.how == "sequence"
        key = (id(cell.source), str(form))
        if key not in pictures.prepared:
            pictures.prepared[key] = self._prepare(pictures.rows, cell)
        return pictures.prepared[key]

    def _prepare(self, rows: Sequence[int], cell: Cell) -> tuple[list[int], list[Pixels], list[tuple[int, str]]]:
        read: list[int] = []
        images: list[Pixels] = []
        unreadable: list[tuple[int, str]] = []
        for row in rows:
            try:
                picture = cell.source.image(self._place(cell, row))
            except UnreadableImage as error:
                unreadable.append((row, str(error)))
                continue
            read.append(row)
            if cell.how == "sequence":
                images.append(sequence_image(picture, self.steps, cell.kind))
            else:
                images.append(protocol_image(picture, self.steps))
        return read, images, unreadable

    def _stored(self, shard: int, number: int, rows: Sequence[int]) -> Chunk:
        cell = self.plan.cells[number]
        read, images, unreadable = [], [], []
        for row in rows:
            try:
                images.append(np.array(cell.source.image(self._place(cell, row)).convert("RGB")))
                read.append(row)
            except UnreadableImage as error:
                unreadable.append((row, str(error)))
        return Chunk(shard, number, read, self._stack(images, corrupted=False), unreadable)

    def _film(self, shard: int, number: int, row: int) -> Chunk:
        cell = self.plan.cells[number]
        try:
            frames = cell.source.frames(self._place(cell, row))
        except UnreadableImage as error:
            return Chunk(shard, number, [], None, [(row, str(error))])
        return Chunk(shard, number, [row], self._film_tensor(frames), [])

    def _place(self, cell: Cell, row: int) -> int:
        place = cell.place(row)
        if place < 0:
            raise UnreadableImage(self.plan.ids[row], f"{cell.name} has no such image")
        return place

    def _film_tensor(self, frames: np.ndarray) -> Tensor | None:
        stack = self._stack(list(frames), corrupted=False)  # stored sequences are films or arrays, never JPEGs
        return stack.unsqueeze(0) if stack is not None else None

    def _stack(self, images: list[Pixels], *, corrupted: bool) -> Tensor | None:
        if not images:
            return None
        ready = np.stack([finished(image, self.steps, corrupted=corrupted) for image in images])
        return torch.from_numpy(np.ascontiguousarray(ready.transpose(0, 3, 1, 2)))  # n 3 H W


def chunk_loader(production: Production, *, workers: int, pin: bool) -> DataLoader[Chunk | Failure]:
    """The chunks, in the order in which workers finish their turns."""
    return DataLoader(
        production,
        batch_size=None,
        num_workers=workers,
        prefetch_factor=2 if workers else None,
        pin_memory=pin,
        worker_init_fn=_begin_worker,
        generator=torch.Generator(),  # otherwise a loader draws from the caller's
    )


def _chunk_size(steps: Preprocessing) -> int:
    return max(1, min(LARGEST_CHUNK, LARGEST_BYTES // (3 * steps.size[0] * steps.size[1])))


def _begin_worker(number: int) -> None:
    """One thread per worker, and Ctrl-C is the main process' business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(0)
