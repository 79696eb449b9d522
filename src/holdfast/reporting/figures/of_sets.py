"""How a score of whole sets (mIoU, AP) falls with severity, and what is retained of it: segmenters and detectors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.metrics.intervals import Interval, Scale, score_interval
from holdfast.metrics.jackknife import Groups, image_groups
from holdfast.records.records import CellRecord
from holdfast.reporting.entries import DataSet, Entry
from holdfast.reporting.figures import charts
from holdfast.reporting.figures.charts import Line
from holdfast.reporting.figures.pictures import Picture, svg_picture
from holdfast.tasks import task_named

Curve = dict[int, NDArray[np.float64]]  # by severity, 0 for clean: the value, then its replicates; percent


def set_curves(data: DataSet, *, anchor: str) -> list[Picture]:
    """The score by severity, and its share of the clean score; none for a task that scores no whole cells."""
    task: Any = task_named(data.task)
    if getattr(task, "cell_replicates", None) is None:
        return []
    curves = [(entry, curve) for entry in data.shown if len(curve := _curve(entry, task)) > 1]
    kept = [(entry, _retained(curve)) for entry, curve in curves if _retained(curve)]
    over = "Mean over the kinds at each severity. Bands: 95 % intervals over the choice of images."
    what = str(task.cell_words)
    return [
        *_picture(
            curves,
            what,
            scale="proportion",
            name=f"{anchor}-severity",
            title=f"{_capital(what)} by severity",
            caption=over,
        ),
        *_picture(
            kept,
            f"{what} retained",
            scale="ratio",
            name=f"{anchor}-retention",
            title="Retention by severity",
            caption=f"{_capital(what)} by that of the clean images. Bands as before.",
        ),
    ]


def _picture(
    curves: Sequence[tuple[Entry, Curve]], what: str, *, scale: Scale, name: str, title: str, caption: str
) -> list[Picture]:
    lines = [_line(entry, curve, scale) for entry, curve in curves]
    if not lines:
        return []
    return [svg_picture(lambda: charts.severity_curves(lines, what=what), name=name, title=title, caption=caption)]


def _curve(entry: Entry, task: Any) -> Curve:
    """Severities that all measured kinds have."""
    cells = {c.spec: c for c in entry.records.cells.values() if c.spec.family in ("clean", "corruption") and len(c)}
    kinds = {spec.kind for spec in cells if spec.family == "corruption"}
    severities = [s for s in sorted({spec.severity for spec in cells}) if s == 0 or _complete(cells, kinds, s)]
    if not kinds or not severities:
        return {}
    replicates = 100 * _replicates(cells, task)
    rows = {spec: replicates[place] for place, spec in enumerate(cells)}
    return {s: np.mean([row for spec, row in rows.items() if spec.severity == s], axis=0) for s in severities}


def _replicates(cells: dict[Any, CellRecord], task: Any) -> NDArray[np.float64]:
    """Of every cell its value and replicates; the value alone where the cells hold different images."""
    named = {spec.name: cell for spec, cell in cells.items()}
    first = next(iter(cells.values()))
    if any(not np.array_equal(cell.ids, first.ids) for cell in cells.values()):
        return np.array(task.cell_values(named))[:, None]
    return np.asarray(task.cell_replicates(named, image_groups(first.ids)))


def _complete(cells: dict[Any, CellRecord], kinds: set[str], severity: int) -> bool:
    return {spec.kind for spec in cells if spec.family == "corruption" and spec.severity == severity} == kinds


def _retained(curve: Curve) -> Curve:
    if 0 not in curve or not curve[0][0] > 0:
        return {}
    clean = np.where(curve[0] > 0, curve[0], np.nan)
    return {severity: 100 * values / clean for severity, values in curve.items() if severity}


def _line(entry: Entry, curve: Curve, scale: Scale) -> Line:
    groups = image_groups(next(iter(entry.records.cells.values())).ids)
    bounds = [_bounds(values, scale, groups) for values in curve.values()]
    known = all(len(values) > 1 for values in curve.values())
    low, high = ([b.low for b in bounds], [b.high for b in bounds]) if known else ([], [])
    return Line(entry.name, entry.run.number, list(curve), [b.value for b in bounds], low, high)


def _bounds(values: NDArray[np.float64], scale: Scale, groups: Groups) -> Interval:
    return score_interval(values, scale=scale, images=groups.independent, whole=100, highest_at_zero=0.0)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
