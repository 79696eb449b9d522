"""Data loader of an evaluation: workers read, preprocess and corrupt images while the model runs.

Every worker owns some rows of each shard: it decodes them once, caches them, and yields one cell after the other.
All draws are keyed by image id, so nothing here depends on how many workers there are.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, cast

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from holdfast.corruptions.custom import Registered, know, registered
from holdfast.errors import HoldfastError
from holdfast.evaluation.cell_images import Samples, Unreadable, WorkerCache
from holdfast.evaluation.plan import Plan
from holdfast.evaluation.preprocessing import Preprocessing
from holdfast.runtime.signals import exit_when_orphaned

# images per message from a worker: few enough for the 64 MB of shared memory that containers have by default
LARGEST_CHUNK, LARGEST_BYTES = 64, 2_500_000
# images per shard, and the most bytes of them, because workers hold the images of a shard in memory
LARGEST_SHARD, SHARD_BYTES = 256, 128 * 2**20


@dataclass(frozen=True)
class Job:
    """One shard and the numbers of its cells that remain to be measured.

    Attributes:
        shard: number of the shard.
        cells: numbers of the cells.
        known: rows by cell that need not be measured again.
    """

    shard: int
    cells: tuple[int, ...]
    known: Mapping[int, frozenset[int]] = field(default_factory=dict)


class Chunk(NamedTuple):
    """Some images of one unit at the model's size; ``images`` is uint8, (n, 3, H, W) or (n, F, 3, H, W).

    ``shard`` is the number of the shard, or of the part of a round.
    """

    shard: int
    cell: int
    rows: list[int]
    images: Tensor | None
    targets: list[Any]
    unreadable: Unreadable


class Failure(NamedTuple):
    """A worker's error as one sentence; an exception would carry its traceback along."""

    sentence: str


class Chunks(IterableDataset[Chunk | Failure]):
    """All chunks of all jobs, or in a worker its share of them."""

    def __init__(self, plan: Plan, jobs: Sequence[Job], *, steps: Preprocessing, seed: int, shard_size: int) -> None:
        self.plan, self.jobs, self.steps = plan, tuple(jobs), steps
        self.seed, self.shard_size = seed, shard_size

    def __iter__(self) -> Iterator[Chunk | Failure]:
        yield from or_failure(self._all_chunks())

    def _all_chunks(self) -> Iterator[Chunk]:
        number, workers = this_worker()
        for job in self.jobs:
            rows = self.plan.rows(job.shard, self.shard_size)
            size = min(chunk_size(self.plan, self.steps), -(-len(rows) // workers))
            chunks = [rows[start : start + size] for start in range(0, len(rows), size)]
            mine = [(chunk, WorkerCache(self.plan, self.steps, self.seed)) for chunk in chunks[number::workers]]
            for cell in job.cells:
                known = job.known.get(cell, ())
                for chunk, cache in mine:
                    wanted = [row for row in chunk if row not in known]
                    yield from make_chunks(job.shard, cell, wanted, cache)


def or_failure(chunks: Iterator[Chunk]) -> Iterator[Chunk | Failure]:
    """The chunks; an error ends them with its sentence."""
    try:
        yield from chunks
    except HoldfastError as error:
        yield Failure(str(error))
    except MemoryError:
        yield Failure("not enough memory to make the images; use fewer --workers")


def this_worker() -> tuple[int, int]:
    """Number of this worker, and how many there are."""
    info = get_worker_info()
    return (info.id, info.num_workers) if info is not None else (0, 1)


def chunk_size(plan: Plan, steps: Preprocessing) -> int:
    """Images per message from a worker; one if every image keeps its own size."""
    if not plan.task.evaluation.batched or steps.size is None:
        return 1
    return max(1, min(LARGEST_CHUNK, LARGEST_BYTES // bytes_of(steps.size)))


def make_chunks(number: int, cell: int, rows: Sequence[int], cache: WorkerCache) -> Iterator[Chunk]:
    """Make some images of a cell; ``number`` is that of the shard or part."""
    if rows:
        made = cache.plan.cells[cell].make.pieces(cache.plan.cells[cell], rows, cache)
        yield from (_chunk(number, cell, samples) for samples in made)


def _chunk(shard: int, cell: int, samples: Samples) -> Chunk:
    stack = (
        torch.from_numpy(np.ascontiguousarray(_channels_first(np.stack(samples.images)))) if samples.images else None
    )
    return Chunk(shard, cell, samples.rows, stack, samples.targets, samples.unreadable)


def _channels_first(images: np.ndarray) -> np.ndarray:
    return np.moveaxis(images, -1, -3)  # n 3 H W, n F 3 H W


def chunk_loader(chunks: IterableDataset[Chunk | Failure], *, workers: int, pin: bool) -> DataLoader[Chunk | Failure]:
    """A DataLoader of the chunks, workers taking turns."""
    return DataLoader(
        chunks,
        batch_size=None,
        num_workers=workers,
        prefetch_factor=2 if workers else None,
        pin_memory=pin,
        worker_init_fn=partial(_begin_worker, own=registered()),
        generator=torch.Generator(),  # without its own the loader would advance the caller's global generator
    )


@contextmanager
def ended_workers(loader: DataLoader[Chunk | Failure]) -> Iterator[Iterator[Chunk | Failure]]:
    """Iterate over a loader; on exit its workers are ended without waiting for the image they are making."""
    chunks = iter(loader)
    try:
        yield chunks
    finally:
        processes = list(getattr(chunks, "_workers", ()))
        if processes:  # torch asks them to exit, waits some seconds, and no longer reports their death as a failure
            cast(Any, chunks)._shutdown_workers()
        for process in processes:
            if process.is_alive():  # still making an image; there is nothing to save
                process.kill()


def fitting_shard(size: tuple[int, int]) -> int:
    """Images per shard: 256, or as many of this size as fit into the memory for one shard."""
    return max(1, min(LARGEST_SHARD, SHARD_BYTES // bytes_of(size)))


def bytes_of(size: tuple[int, int]) -> int:
    """Bytes of one uint8 colour image of this height and width."""
    return 3 * size[0] * size[1]


def _begin_worker(number: int, own: Sequence[Registered] = ()) -> None:
    """Initialise a worker: register custom corruptions, exit with the main process, use one OpenCV thread."""
    know(own)
    exit_when_orphaned()
    cv2.setNumThreads(0)
