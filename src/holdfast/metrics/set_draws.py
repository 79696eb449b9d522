"""Intervals of scores that belong to a whole set, such as AP: they are computed anew for every draw of the images.

A task says so by a method ``drawn(cell, draws)``, which gives some of its columns for every draw, and by
``most_draws(images, cells)``: how many it can afford where nobody asks for a number. All cells and models of the same
images are drawn alike, so that differences are paired.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.metrics.formulas import Formula, Means, column
from holdfast.metrics.precision_draws import drawn_images
from holdfast.progress_line import ProgressLine
from holdfast.records.records import CellRecord
from holdfast.tasks import task_named

Columns = Mapping[str, NDArray[np.float64]]


def draws_wanted(resamples: int | None, *, task: str, images: int, cells: int, usual: int) -> int:
    """What was asked for; else as many draws as the task can afford, or the usual number."""
    if resamples is not None:
        return resamples
    afford = getattr(task_named(task), "most_draws", None)
    return int(afford(images, cells)) if afford is not None else usual


def set_draws(
    cells: Mapping[str, CellRecord], ids: NDArray[np.str_], *, task: str, resamples: int, seed: int
) -> dict[str, NDArray[np.float64]]:
    """The drawn columns of all cells; none where the task's scores are functions of means over images."""
    drawn: Any = getattr(task_named(task), "drawn", None)
    if drawn is None or not resamples:
        return {}
    draws = drawn_images(len(ids), resamples=resamples, seed=seed)
    found = {}
    with ProgressLine("AP intervals", total=len(cells) * resamples, unit="draws", show=None) as line:
        for name, cell in cells.items():
            for quantity, values in drawn(_in_order(cell, ids), draws).items():
                found[column(name, quantity)] = values
            line.advance(resamples)
    return found


def drawn_values(formula: Formula, drawn: Means, of_sets: Columns) -> NDArray[np.float64]:
    """The score of drawn images; of a score that is no function of means, draw by draw from what was drawn of sets."""
    found = np.asarray(formula.compute(drawn), dtype=np.float64)
    if not of_sets or not np.isnan(found).all():
        return found
    rows = zip(*of_sets.values(), strict=True)
    try:
        return np.array([float(formula.compute(dict(zip(of_sets, row, strict=True)))) for row in rows])
    except KeyError:  # AP alone is drawn, not its relatives
        return found


def drawn_words(of_sets: Columns) -> str:
    """How often a set was drawn, for what stands below a table."""
    count = len(next(iter(of_sets.values()))) if of_sets else 0
    return f"intervals of AP from {count} draws of the images, each scored anew" if count else ""


def _in_order(cell: CellRecord, ids: Sequence[str] | NDArray[np.str_]) -> CellRecord:
    """The cell itself, or its images in the order of ``ids``."""
    if len(cell) == len(ids) and np.array_equal(cell.ids, ids):
        return cell
    places = {name: place for place, name in enumerate(cell.ids.tolist())}
    rows = [places[str(name)] for name in ids]
    fields = {
        name: values[rows] if isinstance(values, np.ndarray) else tuple(values[row] for row in rows)
        for name, values in cell.fields.items()
    }
    return replace(cell, ids=cell.ids[rows], targets=cell.targets[rows], fields=fields)
