"""``Cell`` and ``Plan``: one condition applied to all images, and all images and cells of an evaluation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

import numpy as np

from holdfast.cells import CellSpec
from holdfast.errors import HoldfastError
from holdfast.evaluation.cell_images import CellImages
from holdfast.evaluation.order import stratified_order
from holdfast.tasks import Task, task_of


@dataclass(frozen=True, eq=False)
class Cell:
    """One condition (clean, corruption and severity, attack …) and the images it is applied to.

    Attributes:
        spec: the cell's family, kind and severity, as in records.
        make: makes its images, see `holdfast.evaluation.cell_images`.
        source: source of the images; the same object for all cells that share their images.
        definition: settings of the cell as plain data; must agree to resume it or to compare it.
        attack: the attack on the images, if any.
        places: index in ``source`` of every row of the record set, −1 for a missing image; None if they are equal.
    """

    spec: CellSpec
    make: CellImages
    source: Any = field(repr=False)
    definition: Mapping[str, Any] = field(default_factory=dict)
    attack: Any = None
    places: np.ndarray | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """Name of the cell, as in records."""
        return self.spec.name

    @property
    def record_definition(self) -> dict[str, Any]:
        """Definition and spec as plain data, as a unit's header records them."""
        return {**self.definition, **self.spec.plain()}

    def place(self, row: int) -> int:
        """Index in ``source`` of a row of the record set; −1 if the cell lacks the image."""
        return row if self.places is None else int(self.places[row])


@dataclass(frozen=True, eq=False)
class Plan:
    """All images of a record set and all cells to measure on them.

    Attributes:
        task: task of the data.
        ids: image ids, one per row.
        truth: targets as the task records them, one row per image.
        strata: stratum of every image, for stratified subsets.
        classes: number of classes.
        cells: cells to measure.
        missing: names of cells that the stored set lacks.
    """

    task: Task
    ids: tuple[str, ...]
    truth: np.ndarray
    strata: np.ndarray
    classes: int
    cells: tuple[Cell, ...]
    missing: tuple[str, ...] = ()

    def shards(self, size: int) -> int:
        """Number of shards of at most ``size`` images."""
        return -(-len(self.ids) // size)

    def rows(self, shard: int, size: int) -> range:
        """Rows of a shard: strided, so that every shard is a sample of all classes."""
        return range(shard, len(self.ids), self.shards(size))


def shared_plan(source: Any, make: Callable[[Any], Sequence[Cell]]) -> Plan:
    """Make a plan whose cells all start from the same images."""
    task, ids = task_of(source), tuple(source.id(index) for index in range(len(source)))
    cells = tuple(make(source))
    return Plan(
        task, _unique(ids), task.evaluation.truth(source), task.evaluation.strata(source), len(source.classes), cells
    )


def stored_plan(cells: Sequence[Cell], *, limit: int | None, missing: Sequence[str]) -> Plan:
    """Make a plan whose cells store their own images, matched by id; missing images count as unreadable."""
    task = task_of(cells[0].source)
    truths: dict[str, Any] = {}
    strata: dict[str, int] = {}
    own_ids = []
    for cell in cells:
        if cell.source.classes != cells[0].source.classes:
            raise HoldfastError(
                f"{cell.name} must have the {len(cells[0].source.classes)} classes of {cells[0].name}, "
                f"got {len(cell.source.classes)}: a missing or additional class folder would shift all labels after it"
            )
        ids = [cell.source.id(index) for index in range(len(cell.source))]
        own_ids.append(ids)
        truths.update(zip(ids, task.evaluation.truth(cell.source), strict=True))
        strata.update(zip(ids, map(int, task.evaluation.strata(cell.source)), strict=True))
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
    """Choose a stratified subset by a digest of the ids, so that every model is measured on the same images.

    A smaller limit gives a subset of a larger one.
    """
    if not isinstance(limit, Integral):
        raise HoldfastError(f"limit must be a whole number, got {limit!r}")
    if limit < 0:
        raise HoldfastError(f"limit must be at least 1, or 0 for all images, got {limit}")
    if limit == 0 or limit >= len(ids):
        return np.arange(len(ids))
    return np.sort(stratified_order(ids, strata)[:limit])


def _place_cell(cell: Cell, own: list[str], names: list[str]) -> Cell:
    if own == names:
        return cell
    numbers = {name: number for number, name in enumerate(own)}
    places = np.array([numbers.get(name, -1) for name in names], dtype=np.int64)
    return replace(cell, places=places)


def _unique(ids: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(ids)) != len(ids):
        raise HoldfastError(f"ids of a data set must be unique, got {len(ids) - len(set(ids))} duplicates")
    return ids
