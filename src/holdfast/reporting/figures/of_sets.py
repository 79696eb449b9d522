"""How a score of whole sets (mIoU, AP) falls with severity, and what is retained of it: segmenters and detectors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.metrics.intervals import interval_of
from holdfast.records.records import CellRecord
from holdfast.reporting.entries import DataSet, Entry
from holdfast.reporting.figures import charts
from holdfast.reporting.figures.charts import Line
from holdfast.reporting.figures.pictures import Picture, svg_picture
from holdfast.tasks import task_named

Curve = dict[int, NDArray[np.float64]]  # by severity, 0 for clean: the value, then those of drawn images; percent


def set_curves(data: DataSet, *, anchor: str) -> list[Picture]:
    """The score by severity, and its share of the clean score; none for a task that scores no whole cells."""
    task: Any = task_named(data.task)
    if getattr(task, "cell_draws", None) is None:
        return []
    curves = [(entry, curve) for entry in data.shown if len(curve := _curve(entry, task)) > 1]
    kept = [(entry, _retained(curve)) for entry, curve in curves if _retained(curve)]
    over = "Mean over the kinds at each severity. Bands: 95 % intervals over the choice of images."
    what = str(task.cell_words)
    return [
        *_picture(curves, what, name=f"{anchor}-severity", title=f"{_capital(what)} by severity", caption=over),
        *_picture(
            kept,
            f"{what} retained",
            name=f"{anchor}-retention",
            title="Retention by severity",
            caption=f"{_capital(what)} by that of the clean images. Bands as before.",
        ),
    ]


def _picture(curves: Sequence[tuple[Entry, Curve]], what: str, *, name: str, title: str, caption: str) -> list[Picture]:
    lines = [_line(entry, curve) for entry, curve in curves]
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
    drawn = 100 * task.cell_draws({spec.name: cell for spec, cell in cells.items()})
    rows = {spec: drawn[place] for place, spec in enumerate(cells)}
    return {s: np.mean([row for spec, row in rows.items() if spec.severity == s], axis=0) for s in severities}


def _complete(cells: dict[Any, CellRecord], kinds: set[str], severity: int) -> bool:
    return {spec.kind for spec in cells if spec.family == "corruption" and spec.severity == severity} == kinds


def _retained(curve: Curve) -> Curve:
    if 0 not in curve or not curve[0][0] > 0:
        return {}
    clean = np.where(curve[0] > 0, curve[0], np.nan)
    return {severity: 100 * values / clean for severity, values in curve.items() if severity}


def _line(entry: Entry, curve: Curve) -> Line:
    bounds = [interval_of(float(values[0]), values[1:]) for values in curve.values()]
    known = all(len(values) > 1 for values in curve.values())
    low, high = ([b.low for b in bounds], [b.high for b in bounds]) if known else ([], [])
    return Line(entry.name, entry.run.number, list(curve), [b.value for b in bounds], low, high)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
