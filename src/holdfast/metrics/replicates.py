"""``replicates[cell, quantity]``: every quantity of every cell, and its values without each group of images.

A quantity is an array (1 + groups,): first the value of all images, then that without each jackknife group. Scores,
intervals, paired differences, gates, curves and the columns of a study are all computed from these arrays. Means over
images come from one grouped sum, average precision from `holdfast.metrics.ap_jackknife`. A quantity without
replicates, such as COCO's AP of small objects, is an array (1,): a score of it has no interval.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import HoldfastError
from holdfast.metrics.custom import own_columns
from holdfast.metrics.jackknife import Groups, image_groups, replicated_means
from holdfast.metrics.scoring.base import Key, ScoreDefinition
from holdfast.metrics.scoring.registry import scoring_of
from holdfast.records.records import CellRecord
from holdfast.runtime.progress import ProgressLine

Columns = Mapping[Key, NDArray[np.float64]]
Cells = Mapping[str, CellRecord]
ImageChoice = Literal["shared", "own"]


@dataclass(frozen=True, eq=False)
class UsedImages:
    """The images over which the quantities of some cells are computed.

    Attributes:
        ids: all images, each once.
        targets: their targets.
        rows: the places of every cell's images in ``ids``; empty if every cell has all of them.
    """

    ids: NDArray[np.str_]
    targets: NDArray[Any]
    rows: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def of_cell(self, cell: str) -> NDArray[np.str_]:
        """Ids of one cell's images."""
        return self.ids[self.rows[cell]] if self.rows else self.ids

    def groups(self) -> Groups:
        """Jackknife groups of all images."""
        return image_groups(self.ids, self.targets)


@dataclass(frozen=True, eq=False)
class Replicates(Mapping[Key, NDArray[np.float64]]):
    """The quantities of one model's cells: ``replicates[cell, quantity]``, (1 + groups,).

    Attributes:
        arrays: the arrays by cell and quantity.
        groups: jackknife groups of the images; None if only values were computed.
        columns: per-image values of the quantities that are means over images.
        rows: as in `UsedImages`.
    """

    arrays: Columns
    groups: Groups | None
    columns: Columns = field(default_factory=dict)
    rows: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def __getitem__(self, key: Key) -> NDArray[np.float64]:
        return self.arrays[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def score(self, formula: ScoreDefinition) -> NDArray[np.float64]:
        """The score of all images, then without each group that has an image in its cells; (1,) without replicates."""
        values = np.asarray(formula.compute(self), dtype=np.float64)
        if values.ndim == 0:  # a constant
            values = np.full(1 + (self.groups.count if self.groups is not None else 0), values)
        if not self.rows or self.groups is None or len(values) == 1:
            return values
        return values[[0, *(1 + np.unique(self.groups.numbers[self._images(formula)]))]]

    def groups_of(self, formula: ScoreDefinition) -> Groups:
        """The groups that have an image in the score's cells; all of them if the cells have the same images."""
        assert self.groups is not None
        if not self.rows:
            return self.groups
        images = self._images(formula)
        there, numbers = np.unique(self.groups.numbers[images], return_inverse=True)
        independent = len(there) if self.groups.what else len(images)
        return Groups(numbers, len(there), independent, self.groups.what)

    def is_binary(self, key: Key | None) -> bool:
        """Whether the quantity is 0 or 1 for every image."""
        return key in self.columns and bool(np.isin(self.columns[key], (0.0, 1.0)).all())

    def _images(self, formula: ScoreDefinition) -> NDArray[np.int64]:
        cells = {cell for cell, _ in formula.reads} or set(self.rows)
        return np.unique(np.concatenate([self.rows[cell] for cell in cells]))


def used_images(*models: Cells, images: ImageChoice = "shared") -> UsedImages:
    """Choose the images of every cell; this is the only place that does.

    Args:
        models: the cells of one model, or of several that are compared.
        images: ``shared`` takes the images that all cells of all models have, so that scores of different cells are
            over the same images; ``own`` takes every cell's own images, as far as all models have them there.
    """
    cells = models[0]
    if images == "shared" or not cells:
        ids = shared_ids(*models)
        return UsedImages(ids, _targets(cells, ids))
    own = {name: shared_ids(*({name: model[name]} for model in models)) for name in cells}
    first = next(iter(own.values()))
    if all(_same(first, ids) for ids in own.values()):
        return UsedImages(first, _targets(cells, first))
    names = np.concatenate(list(own.values()))
    targets = np.concatenate([_targets({name: cells[name]}, ids) for name, ids in own.items()])
    places = np.sort(np.unique(names, return_index=True)[1])  # each once, in the order of the cells
    rows = {name: _rows(names[places], ids) for name, ids in own.items()}
    return UsedImages(names[places], targets[places], rows)


def shared_ids(*models: Cells) -> NDArray[np.str_]:
    """Ids of the images common to all cells, in the order of the first cell."""
    cells = [cell for model in models for cell in model.values()]
    if not cells:
        return np.empty(0, dtype=np.str_)
    ids = cells[0].ids
    for cell in cells[1:]:
        if not _same(ids, cell.ids):
            ids = ids[np.isin(ids, cell.ids)]
    if not len(ids):
        raise HoldfastError("cells of records must have at least one common image, got none")
    return ids


def replicate_cells(cells: Cells, used: UsedImages, groups: Groups | None) -> Replicates:
    """Compute every quantity of every cell of a task, with replicates if there are groups.

    Scores of a whole set, such as AP, are what `Scoring.replicates` returns: arrays (1 + groups,), or (1,)
    without groups.
    """
    columns: dict[Key, NDArray[np.float64]] = {}
    of_sets: dict[Key, NDArray[np.float64]] = {}
    words = next(filter(None, (scoring_of(cell.task).replicates_words for cell in cells.values())), "")
    with ProgressLine(words, total=len(cells), unit="cells", show=None if words and groups else False) as line:
        for name, recorded in cells.items():
            cell, scoring = in_order(recorded, used.of_cell(name)), scoring_of(recorded.task)
            found = {**own_columns(cell), **scoring.columns(cell)}
            columns |= {(name, quantity): values for quantity, values in found.items()}
            of_set = scoring.replicates(cell, _groups_of_cell(groups, used.rows.get(name)))
            of_sets |= {(name, quantity): values for quantity, values in of_set.items()}
            line.advance(1)
    return replicate(columns, groups, of_sets=of_sets, rows=used.rows)


def replicate(
    columns: Columns,
    groups: Groups | None,
    *,
    of_sets: Columns | None = None,
    rows: Mapping[str, NDArray[np.int64]] | None = None,
) -> Replicates:
    """Average per-image values over all images and without each group; quantities of whole sets are added as given."""
    rows = rows or {}
    values: dict[Key, NDArray[np.float64]] = {}
    together = [list(columns)] if not rows else [[key for key in columns if key[0] == cell] for cell in rows]
    for keys in filter(None, together):  # cells with the same images in one grouped sum
        matrix = np.stack([columns[key] for key in keys], axis=1)  # images × columns
        own = _groups_of_cell(groups, rows.get(keys[0][0]))
        means = matrix.mean(axis=0)[None] if own is None else replicated_means(matrix, own)
        values |= dict(zip(keys, means.T, strict=True))
    return Replicates({**values, **(of_sets or {})}, groups, columns, rows)


def _groups_of_cell(groups: Groups | None, rows: NDArray[np.int64] | None) -> Groups | None:
    return groups if groups is None or rows is None else replace(groups, numbers=groups.numbers[rows])


def in_order(cell: CellRecord, ids: Sequence[str] | NDArray[np.str_]) -> CellRecord:
    """The cell with its images in the order of ``ids``."""
    wanted = np.asarray(ids, dtype=np.str_)
    if _same(cell.ids, wanted):
        return cell
    rows = _rows(cell.ids, wanted)
    fields = {
        name: values[rows] if isinstance(values, np.ndarray) else tuple(values[row] for row in rows)
        for name, values in cell.fields.items()
    }
    return replace(cell, ids=cell.ids[rows], targets=cell.targets[rows], fields=fields)


def _targets(cells: Cells, ids: NDArray[np.str_]) -> NDArray[Any]:
    """Targets of these images, from the first cell."""
    cell = next(iter(cells.values()), None)
    return np.empty(0) if cell is None else cell.targets[_rows(cell.ids, ids)]


def _rows(ids: NDArray[np.str_], wanted: NDArray[np.str_]) -> NDArray[np.int64]:
    if _same(ids, wanted):
        return np.arange(len(ids))
    order = np.argsort(ids, kind="stable")
    return order[np.searchsorted(ids, wanted, sorter=order)]


def _same(one: NDArray[np.str_], other: NDArray[np.str_]) -> bool:
    """Compare ids by bytes, because NumPy's text comparison takes seconds for the cells of ImageNet."""
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
