"""A cell is one thing that is done to all images of a data set; a plan is all images and all cells of an evaluation."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.evaluation.cell_images import CellImages
from holdfast.records.cells import CellSpec
from holdfast.tasks import Task, task_of


@dataclass(frozen=True, eq=False)
class Cell:
    """What to do, and to which images.

    Attributes:
        spec: what the cell is, as records say it.
        make: how its images are made, see :mod:`holdfast.evaluation.cell_images`.
        source: where the images are; the same object for all cells that share their pictures.
        definition: what else the records say about the cell, as plain data: what must agree to continue or compare it.
        attack: what the images go through before the model answers, if anything.
        restricted_to: ``imagenet_a`` or ``imagenet_r``, if only their 200 classes count.
        places: the image's number in ``source`` for every row of the record set, −1 where it has none; None for equal.
    """

    spec: CellSpec
    make: CellImages
    source: Any = field(repr=False)
    definition: Mapping[str, Any] = field(default_factory=dict)
    attack: Any = None
    restricted_to: str | None = None
    places: np.ndarray | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """As in records."""
        return self.spec.name

    @property
    def described(self) -> dict[str, Any]:
        """What the records say of the cell beside its name."""
        return {**self.definition, **self.spec.plain()}

    def place(self, row: int) -> int:
        """The number in ``source`` of a row of the record set; −1 if the cell lacks it."""
        return row if self.places is None else int(self.places[row])


@dataclass(frozen=True, eq=False)
class Plan:
    """All images of a record set and all cells to measure on them.

    Attributes:
        task: what an answer is.
        ids: the images' names, one per row.
        truth: what the task keeps of their targets, one row each.
        strata: by what a sample of them is stratified.
        classes: how many classes the data set has.
        cells: what to do with them.
        missing: names of cells that the stored set should have and does not.
    """

    task: Task
    ids: tuple[str, ...]
    truth: np.ndarray
    strata: np.ndarray
    classes: int
    cells: tuple[Cell, ...]
    missing: tuple[str, ...] = ()

    def shards(self, size: int) -> int:
        """How many shards of at most ``size`` images there are."""
        return -(-len(self.ids) // size)

    def rows(self, shard: int, size: int) -> range:
        """The rows of a shard: every so-many-th image, so that every shard is a sample of all classes."""
        return range(shard, len(self.ids), self.shards(size))


def shared_plan(source: Any, make: Callable[[Any], Sequence[Cell]]) -> Plan:
    """A plan whose cells all start from the same pictures."""
    task, ids = task_of(source), tuple(source.id(index) for index in range(len(source)))
    cells = tuple(make(source))
    return Plan(task, _unique(ids), task.truth(source), task.strata(source), len(source.classes), cells)


def stored_plan(cells: Sequence[Cell], *, limit: int | None, missing: Sequence[str]) -> Plan:
    """A plan whose cells have images of their own, the same ones by id; what a cell lacks counts as unreadable."""
    task = task_of(cells[0].source)
    truths: dict[str, Any] = {}
    strata: dict[str, int] = {}
    own_ids = []
    for cell in cells:
        if cell.source.classes != cells[0].source.classes:
            raise HoldfastError(
                f"{cell.name} must have the {len(cells[0].source.classes)} classes of {cells[0].name}, "
                f"got {len(cell.source.classes)}: a folder more or less shifts all labels behind it"
            )
        ids = [cell.source.id(index) for index in range(len(cell.source))]
        own_ids.append(ids)
        truths.update(zip(ids, task.truth(cell.source), strict=True))
        strata.update(zip(ids, map(int, task.strata(cell.source)), strict=True))
    names = list(truths)
    if limit is not None:
        chosen = limit_rows(names, np.array([strata[name] for name in names]), limit)
        names = [names[row] for row in chosen]
    placed = [_place_cell(cell, ids, names) for cell, ids in zip(cells, own_ids, strict=True)]
    return Plan(
        task,
        tuple(names),
        np.stack([truths[name] for name in names]),
        np.array([strata[name] for name in names]),
        len(cells[0].source.classes),
        tuple(placed),
        tuple(missing),
    )


def limit_rows(ids: Sequence[str], strata: np.ndarray, limit: int) -> np.ndarray:
    """The rows of a subset with every stratum in its share, the same for everybody: chosen by a digest of the ids.

    A smaller limit gives a subset of a larger one's.
    """
    if limit < 1:
        raise HoldfastError(f"limit must be at least 1, got {limit}")
    if limit >= len(ids):
        return np.arange(len(ids))
    order = np.argsort(np.array([_key(name) for name in ids], dtype=np.uint64), kind="stable")
    shares = np.empty(len(ids))
    for stratum in np.unique(strata):
        members = order[strata[order] == stratum]
        shares[members] = (np.arange(len(members)) + 0.5) / len(members)
    first = order[np.argsort(shares[order], kind="stable")][:limit]
    return np.sort(first)


def _place_cell(cell: Cell, own: list[str], names: list[str]) -> Cell:
    if own == names:
        return cell
    numbers = {name: number for number, name in enumerate(own)}
    places = np.array([numbers.get(name, -1) for name in names], dtype=np.int64)
    return replace(cell, places=places)


def _unique(ids: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(ids)) != len(ids):
        raise HoldfastError(f"ids of a data set must differ, got {len(ids) - len(set(ids))} that appear twice")
    return ids


def _key(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "big")
