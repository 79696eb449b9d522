"""Failures to look at: chosen from the records when everything is measured, made again, stored as thumbnails.

Every kind of corruption gets its turn, hardest image first, each image once per kind. Attacks and sequences have none:
their images exist for one model alone, or are films.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest

import numpy as np
import torch

from holdfast.errors import HoldfastError
from holdfast.evaluation.cell_images import WorkerCache
from holdfast.evaluation.plan import Cell
from holdfast.evaluation.preprocessing import PreprocessingSteps
from holdfast.evaluation.runner import Work
from holdfast.inference.normalized_model import NormalizedModel
from holdfast.records.examples import Example, read_examples, write_examples
from holdfast.records.records import CellRecord, Records
from holdfast.tasks import Task
from holdfast.tasks.examples.base import Examples, encode_picture, thumbnail

Chosen = tuple[str, int]  # a cell, and the image's row in its record
Hardness = Callable[[CellRecord], np.ndarray]


def check_examples(task: Task, count: int) -> None:
    """Refuse a task that does not say how its examples are drawn."""
    if count and getattr(task, "examples", None) is None:
        raise HoldfastError(f"keep_examples must be 0 for {task.name}, which does not say how to draw examples")


def keep_examples(
    work: Work, records: Records, *, judge: NormalizedModel, steps: PreprocessingSteps, count: int
) -> None:
    """Choose, make and write the examples of a record set; those of cells that are not in this plan stay."""
    drawing: Examples = work.plan.task.examples  # type: ignore[attr-defined]  # checked before
    cells = {cell.name: cell for cell in work.plan.cells if cell.attack is None and not cell.make.repeated}
    held = {name: record for name, record in records.cells.items() if name in cells}
    chosen = choose(held, count=count, drawing=drawing)
    bench = _Table(work, judge, steps, drawing)
    made = [bench.example(cells[name], held[name], row) for name, row in chosen]
    planned = {cell.name for cell in work.plan.cells}
    others = [each for each in read_examples(work.folder, fingerprint=work.fingerprint) if each.cell not in planned]
    if made or others:
        write_examples(work.folder, [*others, *made], fingerprint=work.fingerprint)


def choose(cells: Mapping[str, CellRecord], *, count: int, drawing: Examples) -> list[Chosen]:
    """The hardest images of every kind in turn.

    Where records do not hold the answers, half of them are by chance instead: the same for every model, so that models
    can be seen side by side.
    """
    shared = [] if drawing.in_records else _in_turn(cells, _by_chance, count // 2)
    own = [pair for pair in _in_turn(cells, drawing.hardness, count) if pair not in shared]
    return [*shared, *own][:count]


def _in_turn(cells: Mapping[str, CellRecord], hardness: Hardness, count: int) -> list[Chosen]:
    queues = [_hardest_first([cells[name] for name in names], names, hardness) for names in _by_kind(cells)]
    turns = (pair for turn in zip_longest(*queues) for pair in turn if pair is not None)
    return list(islice(turns, count))


def _by_kind(cells: Mapping[str, CellRecord]) -> list[list[str]]:
    kinds: dict[tuple[str, str], list[str]] = {}
    for name, cell in cells.items():
        kinds.setdefault((cell.spec.family, cell.spec.kind), []).append(name)
    return list(kinds.values())


def _hardest_first(cells: Sequence[CellRecord], names: Sequence[str], hardness: Hardness) -> Iterator[Chosen]:
    """One kind's images, each in the severity that is hardest for it; what went right is no example."""
    table = np.stack([hardness(cell) for cell in cells])  # severities images
    worst, best = table.max(axis=0), table.argmax(axis=0)
    for row in np.argsort(-worst, kind="stable"):
        if worst[row] <= 0:
            return
        yield names[best[row]], int(row)


def _by_chance(cell: CellRecord) -> np.ndarray:
    """Numbers in (0, 1] from the images' and the cell's names: the same for everybody."""
    keys = [f"{cell.header['cell']}\0{name}".encode("utf-8", "surrogateescape") for name in cell.ids]
    digests = [hashlib.blake2b(key, digest_size=6).digest() for key in keys]
    return np.array([(int.from_bytes(digest, "big") + 1) / 2**48 for digest in digests])


class _Table:
    """Where examples are made."""

    def __init__(self, work: Work, judge: NormalizedModel, steps: PreprocessingSteps, drawing: Examples) -> None:
        self.work, self.judge, self.steps, self.drawing = work, judge, steps, drawing
        self.rows = {id: row for row, id in enumerate(work.plan.ids)}

    def example(self, cell: Cell, record: CellRecord, row: int) -> Example:
        """One image made again, small, with what records do not tell."""
        name = str(record.ids[row])
        bench = WorkerCache(self.work.plan, self.steps, self.work.seed)
        piece = next(iter(cell.make.pieces(cell, [self.rows[name]], bench)))
        pixels, target = piece.images[0], piece.targets[0]
        small = thumbnail(pixels, side=self.drawing.side)
        kept = {}
        if not self.drawing.in_records:
            answers = self.judge.look(torch.from_numpy(np.ascontiguousarray(np.moveaxis(pixels, -1, 0)))[None])
            first = next(iter(answers.values()))[0]
            kept = dict(self.drawing.looked_up(first, target, size=small.size[::-1], cell=cell.name))
        return Example(name, cell.name, encode_picture(small), kept)
