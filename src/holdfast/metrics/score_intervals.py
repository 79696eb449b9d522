"""Intervals of a task's scores and of their differences, from jackknife replicates of the scores' inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.metrics.intervals import FEW_IMAGES, Interval, difference_interval, highest_share, score_interval
from holdfast.metrics.jackknife import INDEPENDENT, Groups, grouping_of, means_and_replicates
from holdfast.metrics.scoring.base import Means, ScoreDefinition, column
from holdfast.records.records import CellRecord
from holdfast.runtime.progress import ProgressLine
from holdfast.tasks import task_named

Columns = Mapping[str, NDArray[np.float64]]
CONSTANT = 1e-9  # replicates that differ by less are equal up to rounding


class Replicated:
    """One model's columns: per-image values, their means, and the means without each group of images."""

    def __init__(self, columns: Columns, groups: Groups | None) -> None:
        self.columns = columns
        self.means, found = means_and_replicates(columns, groups)
        self.replicates: dict[str, NDArray[np.float64]] = found or {}


def set_replicates(
    cells: Mapping[str, CellRecord], ids: NDArray[np.str_], groups: Groups, *, task: str
) -> dict[str, NDArray[np.float64]]:
    """Replicates of scores of a whole set, such as AP, by column; empty if all scores are functions of means.

    A task with such scores has a method ``replicates(cell, groups)`` that returns (1 + groups,) by quantity.
    """
    of_cell: Any = getattr(task_named(task), "replicates", None)
    if of_cell is None:
        return {}
    found = {}
    with ProgressLine("AP intervals", total=len(cells), unit="cells", show=None) as line:
        for name, cell in cells.items():
            for quantity, values in of_cell(in_order(cell, ids), groups).items():
                found[column(name, quantity)] = values[1:]
            line.advance(1)
    return found


def interval_of_score(
    formula: ScoreDefinition, value: float, means: Means, replicates: Means, *, groups: Groups
) -> Interval:
    """The confidence interval of one score."""
    left = np.broadcast_to(np.asarray(formula.compute(replicates), dtype=np.float64), groups.count)
    scale = formula.interval_scale
    if scale == "proportion" and not 0 <= value <= 100 + 1e-9:
        scale = "plain"  # a custom score in percent that is not a proportion
    at_zero = _highest_at_zero(formula, means, groups) if scale == "ratio" and value == 0 else float("nan")
    return score_interval(
        np.concatenate([[value], left]), scale=scale, images=groups.independent, whole=100, highest_at_zero=at_zero
    )


def _highest_at_zero(formula: ScoreDefinition, means: Means, groups: Groups) -> float:
    """Upper bound of a ratio whose numerator is 0: the ratio at the numerator's own upper bound."""
    share = highest_share(groups)
    return float(
        formula.compute({name: np.clip(mean, share, None if mean > 1 else 1 - share) for name, mean in means.items()})
    )


def interval_of_difference(
    formula: ScoreDefinition,
    values: Sequence[float],
    models: Sequence[Replicated],
    *,
    groups: Groups,
    same_model: bool = False,
) -> Interval:
    """The interval of the first model's score minus the second's; exactly 0 for identical records of one model."""
    value, percent = values[0] - values[1], formula.unit.startswith("%")
    left = [np.asarray(formula.compute(model.replicates), dtype=np.float64) for model in models]
    apart = np.broadcast_to(left[0] - left[1], groups.count)
    constant = np.ptp(apart) < CONSTANT
    if same_model and value == 0 and constant:
        return Interval(0.0, 0.0, 0.0, 0.95)
    binary = percent and all(_binary(model.columns.get(formula.answers)) for model in models)
    whole = 100.0 if percent else 1.0
    if percent and constant:  # no prediction differs; a further image could change the mean of one cell by 1/cells
        binary, whole = True, 100 / max(1, len(formula.cells))
    replicates = np.concatenate([[value], apart])
    return difference_interval(replicates, images=groups.independent, binary=binary, whole=whole)


def is_same_model(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two headers have the same model fingerprint."""
    known = first.get("model_fingerprint")
    return known is not None and known == second.get("model_fingerprint")


def _binary(values: NDArray[np.float64] | None) -> bool:
    return values is not None and bool(np.isin(values, (0.0, 1.0)).all())


def interval_note(cells: Mapping[str, CellRecord], ids: NDArray[np.str_], groups: Groups, *, task: str) -> str:
    """A line on the intervals' limits: few images, blocks of frames, the task's own note; mostly empty."""
    of_task: Any = getattr(task_named(task), "interval_note", None)
    few = f"few images: {len(ids)}" if len(ids) < FEW_IMAGES else ""
    blocks = f"intervals leave out {groups.what} at a time" if groups.what else ""
    notes = [few, blocks or _frames_note(ids, task=task), of_task(cells) if of_task is not None else ""]
    return "; ".join(note for note in notes if note)


def _frames_note(ids: NDArray[np.str_], *, task: str) -> str:
    """A warning for segmentation data whose ids do not show whether images are frames of a recording."""
    known = grouping_of(ids) is not None or all(str(name).startswith(INDEPENDENT) for name in ids)
    if task != "segmentation" or known:
        return ""
    return "intervals assume independent images: too narrow if they are frames of a recording"


def in_order(cell: CellRecord, ids: Sequence[str] | NDArray[np.str_]) -> CellRecord:
    """The cell with its images in the order of ``ids``."""
    if len(cell) == len(ids) and np.array_equal(cell.ids, ids):
        return cell
    places = {name: place for place, name in enumerate(cell.ids.tolist())}
    rows = [places[str(name)] for name in ids]
    fields = {
        name: values[rows] if isinstance(values, np.ndarray) else tuple(values[row] for row in rows)
        for name, values in cell.fields.items()
    }
    return replace(cell, ids=cell.ids[rows], targets=cell.targets[rows], fields=fields)
