"""``ChunkPredictor``: from chunks of images to the recorded fields of the model's outputs, in batches over cells."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.evaluation.attack_cells import attack_batch
from holdfast.evaluation.loader import Chunk, Failure
from holdfast.evaluation.normalized_model import NormalizedModel
from holdfast.evaluation.plan import Cell
from holdfast.evaluation.work import Work
from holdfast.models.corruption_model import Corruptor
from holdfast.records.shard_files import Field

Predicted = tuple[Chunk, dict[str, Field] | None]


class ChunkPredictor:
    """Predicts chunks of images of any cells."""

    def __init__(
        self, work: Work, normalized_model: NormalizedModel, corruptors: Mapping[str, Corruptor] | None = None
    ) -> None:
        self.work, self.normalized_model, self.corruptors = work, normalized_model, corruptors or {}
        self.task, self.views = work.plan.task, normalized_model.views

    def predict_batch(self, chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, dict[str, Field]]]:
        """Predict several chunks, of any cells, in one forward pass."""
        images = [chunk.images.flatten(0, -4) for chunk in chunks if chunk.images is not None]  # n·F 3 H W
        counts = [len(part) for part in images]
        answers = self._answers(torch.cat(images) if len(images) > 1 else images[0])
        ends = np.cumsum([0, *counts])
        for number, chunk in enumerate(chunks):
            mine = {view: values[ends[number] : ends[number + 1]] for view, values in answers.items()}
            cell = self.work.plan.cells[chunk.cell]
            repeats = counts[number] // len(chunk.rows) if cell.make.repeated else None
            yield chunk, self.task.evaluation.keep(mine, chunk.targets, cell=cell, repeats=repeats)

    def predict_alone(self, chunk: Chunk) -> dict[str, Field] | None:
        """The fields of a chunk that is not predicted in a batch; None if its images wait for the whole shard."""
        if chunk.images is None or self.task.evaluation.batched:
            return None
        return self._attack(chunk.cell, chunk.rows, chunk.images, chunk.targets)

    def waits(self, cell: Cell) -> bool:
        """Whether images wait for the whole shard, because predictions depend on the batch that they are in."""
        return cell.attack is not None or (self.normalized_model.by_batch and self.task.evaluation.batched)

    def predict_shard(
        self, number: int, rows: Sequence[int], images: Tensor, targets: Sequence[Any]
    ) -> list[dict[str, Field]]:
        """Process a shard's images in order, in batches of a fixed size, on which attacks and int8 layers depend."""
        attacks = self.work.plan.cells[number].attack is not None
        size = self.work.attack_batch_size if attacks else max(1, self.work.batch_size // images.shape[1:-3].numel())
        process = self._attack if attacks else self._predict
        return [
            process(number, rows[start : start + size], images[start : start + size], targets[start : start + size])
            for start in range(0, len(rows), size)
        ]

    def _answers(self, images: Tensor) -> Mapping[str, Any]:
        model = self.normalized_model
        predict = model.predict_bytes_padded if self.task.evaluation.batched else model.predict_bytes
        parts = [predict(part) for part in images.split(self.work.batch_size)]
        return (
            parts[0] if len(parts) == 1 else {view: _concatenate_parts([p[view] for p in parts]) for view in parts[0]}
        )

    def _predict(self, number: int, rows: Sequence[int], images: Tensor, targets: Sequence[Any]) -> dict[str, Field]:
        cell = self.work.plan.cells[number]
        flat = images.flatten(0, -4)  # n·F 3 H W
        repeats = len(flat) // len(rows) if cell.make.repeated else None
        return self.task.evaluation.keep(self._answers(flat), targets, cell=cell, repeats=repeats)

    def _attack(self, number: int, rows: Sequence[int], images: Tensor, targets: Sequence[Any]) -> dict[str, Field]:
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


def predict_chunks(loader: Iterable[Chunk | Failure], predictor: ChunkPredictor) -> Generator[Predicted, None, None]:
    """Predict chunks as they come, in full batches; raises a worker's failure as an error of one sentence."""
    work, batch = predictor.work, list[Chunk]()
    batch_size = work.batch_size if work.plan.task.evaluation.batched else 1
    for chunk in loader:
        if isinstance(chunk, Failure):
            raise HoldfastError(chunk.sentence)
        if predictor.waits(work.plan.cells[chunk.cell]) or chunk.images is None:
            yield chunk, predictor.predict_alone(chunk)
            continue
        if batch and frames(batch) + frames([chunk]) > batch_size:
            yield from predictor.predict_batch(batch)
            batch = []
        batch.append(chunk)
    if batch:
        yield from predictor.predict_batch(batch)


def frames(chunks: Sequence[Chunk]) -> int:
    """Number of images in some chunks; every frame of a film counts."""
    return sum(chunk.images.shape[:-3].numel() for chunk in chunks if chunk.images is not None)


def _concatenate_parts(parts: Sequence[Any]) -> Any:
    return torch.cat(list(parts)) if isinstance(parts[0], Tensor) else [each for part in parts for each in part]
