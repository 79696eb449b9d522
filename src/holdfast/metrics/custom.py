"""Custom metrics: ``register_metric`` adds a score to summaries, comparisons and reports, with its interval.

def columns(cell):  # per image, of any cell
    return {"sure": (cell.confidences > 0.9).astype(float)}

def formulas(cells):
    clean = [cell.name for cell in cells if cell.family == "clean"]
    text, key = "images with confidence above 0.9", column("clean", "sure")
    compute = lambda means: 100 * means[key]
    return [ScoreDefinition("sure", "sure", "%", "high", text, compute, reads=(key,)) for _ in clean]

register_metric("sure", formulas, "images that the model is sure of", columns=columns)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.cells import CellSpec
from holdfast.metrics.scoring.base import ScoreDefinition
from holdfast.records.header import CLASSIFICATION
from holdfast.records.records import CellRecord
from holdfast.registry import Registry, add_row

Columns = Callable[[CellRecord], Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Metric:
    """A custom metric of a task.

    Attributes:
        name: name of the metric.
        task: name of the task that it belongs to.
        formulas: returns the score definitions for some cells.
        columns: returns further per-image quantities to average, each (N,), by name.
        line: one-line description for ``holdfast list metrics``.
    """

    name: str
    task: str
    formulas: Callable[[Sequence[CellSpec]], Sequence[ScoreDefinition]]
    columns: Columns | None = None
    line: str = ""


METRICS: Registry[str, Metric] = Registry({}, register="holdfast.metrics.register_metric")


def register_metric(
    name: str,
    formulas: Callable[[Sequence[CellSpec]], Sequence[ScoreDefinition]],
    line: str = "",
    *,
    columns: Columns | None = None,
    task: str = CLASSIFICATION,
) -> Metric:
    """Register scores of a task; those with ``headline`` appear in the report's first table."""
    metric = Metric(name, task, formulas, columns, line)
    add_row(METRICS, name, metric, what="metric")
    return metric


def own_formulas(cells: Sequence[CellSpec], *, task: str) -> list[ScoreDefinition]:
    """Registered score definitions for these cells."""
    return [formula for metric in METRICS.values() if metric.task == task for formula in metric.formulas(cells)]


def own_columns(cell: CellRecord) -> dict[str, np.ndarray]:
    """Per-image quantities of the registered metrics in a cell."""
    found: dict[str, np.ndarray] = {}
    for metric in METRICS.values():
        if metric.task == cell.task and metric.columns is not None:
            found.update(metric.columns(cell))
    return found
