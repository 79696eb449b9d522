"""Failure examples: chosen from the records after the evaluation, regenerated and stored as thumbnails.

Corruption kinds take turns, hardest image first, each image once per kind. Attacks and sequences have no examples:
adversarial images belong to one model, and sequences are films.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any

import numpy as np
import torch

from holdfast import rng
from holdfast.cells import CLEAN
from holdfast.errors import HoldfastError
from holdfast.evaluation.cell_images import CleanImages, CorruptedImages, WorkerCache
from holdfast.evaluation.normalized_model import NormalizedModel
from holdfast.evaluation.plan import Cell
from holdfast.evaluation.preprocessing import Preprocessing
from holdfast.evaluation.work import Work
from holdfast.records.examples import Example, read_examples, write_examples
from holdfast.records.records import CellRecord, Records
from holdfast.tasks import Task
from holdfast.tasks.examples.base import Examples, encode_picture, thumbnail

Chosen = tuple[str, int]  # a cell, and the image's row in its record
Hardness = Callable[[CellRecord], np.ndarray]


def check_examples(task: Task, count: int) -> None:
    """Raise an error if examples are requested of a task that cannot draw them."""
    if count and task.drawing is None:
        raise HoldfastError(f"keep_examples must be 0 for {task.name}, whose task has no part drawing to draw them")


def keep_examples(
    work: Work, records: Records, *, normalized_model: NormalizedModel, steps: Preprocessing, count: int
) -> None:
    """Choose, regenerate and write the examples of a record set; keeps those of cells outside this plan."""
    drawing = work.plan.task.drawing
    assert drawing is not None  # checked before
    cells = {cell.name: cell for cell in work.plan.cells if cell.attack is None and not cell.make.repeated}
    held = {name: record for name, record in records.cells.items() if name in cells}
    chosen = choose(held, count=count, drawing=drawing)
    maker = _ExampleMaker(work, normalized_model, steps, drawing)
    made = [maker.example(cells[name], held[name], row) for name, row in chosen]
    planned = {cell.name for cell in work.plan.cells}
    others = [each for each in read_examples(work.folder, fingerprint=work.fingerprint) if each.cell not in planned]
    if made or others:
        write_examples(work.folder, [*others, *made], fingerprint=work.fingerprint)


def choose(cells: Mapping[str, CellRecord], *, count: int, drawing: Examples) -> list[Chosen]:
    """Choose the hardest images of every corruption kind, the kinds taking turns.

    If records do not hold the predictions, half of the examples are random instead: the same for every model, so that
    models can be compared side by side.
    """
    shared = [] if drawing.in_records else _round_robin(cells, _random_hardness, count // 2)
    own = [pair for pair in _round_robin(cells, drawing.hardness, count) if pair not in shared]
    return [*shared, *own][:count]


def _round_robin(cells: Mapping[str, CellRecord], hardness: Hardness, count: int) -> list[Chosen]:
    queues = [_hardest_first([cells[name] for name in names], names, hardness) for names in _by_kind(cells)]
    turns = (pair for turn in zip_longest(*queues) for pair in turn if pair is not None)
    return list(islice(turns, count))


def _by_kind(cells: Mapping[str, CellRecord]) -> list[list[str]]:
    kinds: dict[tuple[str, str], list[str]] = {}
    for name, cell in cells.items():
        kinds.setdefault((cell.spec.family, cell.spec.kind), []).append(name)
    return list(kinds.values())


def _hardest_first(cells: Sequence[CellRecord], names: Sequence[str], hardness: Hardness) -> Iterator[Chosen]:
    """Yield one kind's images, each at its hardest severity; correct predictions are no examples."""
    table = np.stack([hardness(cell) for cell in cells])  # severities images
    worst, hardest = table.max(axis=0), table.argmax(axis=0)
    for row in np.argsort(-worst, kind="stable"):
        if worst[row] <= 0:
            return
        yield names[hardest[row]], int(row)


def _random_hardness(cell: CellRecord) -> np.ndarray:
    """Pseudo-random numbers in (0, 1] from a digest of the image and cell names: the same for every model."""
    return np.array([(rng.number(cell.header["cell"], name, size=6) + 1) / 2**48 for name in cell.ids])


class _ExampleMaker:
    """Regenerates single images of a record set as examples."""

    def __init__(self, work: Work, normalized_model: NormalizedModel, steps: Preprocessing, drawing: Examples) -> None:
        self.work, self.normalized_model, self.steps, self.drawing = work, normalized_model, steps, drawing
        self.rows = {id: row for row, id in enumerate(work.plan.ids)}

    def example(self, cell: Cell, record: CellRecord, row: int) -> Example:
        """Regenerate one image as a thumbnail, with the predictions that records do not hold."""
        name = str(record.ids[row])
        pixels, target = self._image(cell, name)
        small = thumbnail(pixels, side=self.drawing.side)
        kept = {}
        if not self.drawing.in_records:
            answers = self.normalized_model.predict_bytes(
                torch.from_numpy(np.ascontiguousarray(np.moveaxis(pixels, -1, 0)))[None]
            )
            first = next(iter(answers.values()))[0]
            kept = dict(self.drawing.predicted_answer(first, target, size=small.size[::-1], cell=cell.name))
        return Example(name, cell.name, encode_picture(small), kept, self._clean(cell, name))

    def _image(self, cell: Cell, name: str) -> tuple[np.ndarray, Any]:
        cache = WorkerCache(self.work.plan, self.steps, self.work.seed)
        samples = next(iter(cell.make.pieces(cell, [self.rows[name]], cache)))
        return samples.images[0], samples.targets[0]

    def _clean(self, cell: Cell, name: str) -> bytes:
        """Thumbnail of the image before it was corrupted; empty for other images than corrupted ones."""
        if not isinstance(cell.make, CorruptedImages):
            return b""
        pixels, _ = self._image(Cell(CLEAN, CleanImages(), cell.source), name)
        return encode_picture(thumbnail(pixels, side=self.drawing.side))
