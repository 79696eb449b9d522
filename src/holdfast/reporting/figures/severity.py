"""Figures of a data set: score by severity, retention by cost, accuracy–robustness trade-off."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.corruptions.severities import SEVERITIES, STANDARD
from holdfast.metrics.intervals import Interval, Scale, score_interval
from holdfast.metrics.intervals import score_interval as interval_of_replicates
from holdfast.metrics.jackknife import Groups, image_groups, replicated_means
from holdfast.records.cells import CLEAN, corruption_cell
from holdfast.records.header import CLASSIFICATION
from holdfast.records.records import CellRecord
from holdfast.reporting.comparable import DataSet, Entry
from holdfast.reporting.figures import charts
from holdfast.reporting.figures.charts import ChartLine, Point, ReportFigure, Track, svg_picture
from holdfast.reporting.runs import Run
from holdfast.tasks import task_named


def data_figures(data: DataSet, *, anchor: str) -> list[ReportFigure]:
    """Draw the figures of one data set: accuracy by severity, retention by cost, clean vs. attacked."""
    return [
        *(severity_figure(data, anchor=anchor) if data.task == CLASSIFICATION else set_curves(data, anchor=anchor)),
        *cost_figure(data, anchor=anchor),
        *trade_off_figures(data, anchor=anchor),
    ]


def severity_figure(data: DataSet, *, anchor: str) -> list[ReportFigure]:
    """Draw accuracy by severity for the models with all 75 cells."""
    lines = [line for entry in data.shown_models if (line := severity_line(entry)) is not None]
    if not lines:
        return []
    caption = "Mean over the 15 corruptions at each severity. Bands: 95 % intervals over the choice of images."
    picture = svg_picture(
        lambda: charts.severity_curves(lines), name=f"{anchor}-severity", title="Accuracy by severity", caption=caption
    )
    return [picture]


def severity_line(entry: Entry) -> ChartLine | None:
    """Mean accuracy over the 15 corruptions by severity, in percent; None if cells are missing."""
    right = {cell.spec: cell.right for cell in entry.records.cells.values()}
    wanted = [[corruption_cell(kind, severity) for kind in STANDARD] for severity in SEVERITIES]
    if entry.records.task != CLASSIFICATION or any(cell not in right for row in wanted for cell in row):
        return None
    columns = [np.mean([right[cell] for cell in row], axis=0) for row in wanted]
    places: list[float] = list(SEVERITIES)
    if CLEAN in right:
        columns, places = [right[CLEAN], *columns], [0, *places]
    first = next(iter(entry.records.cells.values()))
    groups = image_groups(first.ids, first.targets)
    replicates = 100 * replicated_means(np.stack(columns, axis=1), groups)  # 1 + groups × severities
    bounds = [
        interval_of_replicates(each, scale="proportion", images=groups.independent, whole=100) for each in replicates.T
    ]
    low, high = [each.low for each in bounds], [each.high for each in bounds]
    return ChartLine(entry.name, entry.run.number, places, [each.value for each in bounds], low, high)


def cost_figure(data: DataSet, *, anchor: str) -> list[ReportFigure]:
    """Draw retention against GMACs or parameters if known for at least two models."""
    shown = [entry for entry in data.shown_models if "retention" in entry.summary]
    by_gmacs = all(entry.run.gmacs for entry in shown)
    costs = [entry.run.gmacs if by_gmacs else (entry.run.parameters or 0) / 1e6 for entry in shown]
    points = [
        Point(entry.name, entry.run.number, cost, entry_interval(entry, "retention"))
        for entry, cost in zip(shown, costs, strict=True)
        if cost
    ]
    if len(points) < 2:
        return []
    axis = "GMACs per image" if by_gmacs else "parameters, millions"
    picture = svg_picture(
        lambda: charts.cost_scatter(points, cost=axis),
        name=f"{anchor}-cost",
        title="Retention against cost",
        caption="Accuracy under corruption divided by clean accuracy (FAN, Figure 1), against the model's cost.",
    )
    return [picture]


def entry_interval(entry: Entry, name: str) -> Interval:
    """Value and bounds of a score as an interval."""
    score = entry.summary[name]
    return Interval(score.value, score.low, score.high, 0.95)


def trade_off_figures(data: DataSet, *, anchor: str, most: int = 3) -> list[ReportFigure]:
    """Draw clean accuracy against accuracy under attack for models with several predictions or λ."""
    attacks = dict.fromkeys(
        (score.name, score.kind)
        for entry in data.entries
        if entry.view
        for score in entry.summary
        if score.family == "attack"
    )
    pictures = []
    for number, (name, attack) in enumerate(list(attacks)[:most]):
        tracks = trade_off_tracks(data.entries, name)
        if tracks:
            pictures.append(_trade_off(tracks, attack, name=f"{anchor}-trade-off-{number + 1}"))
    return pictures


def _trade_off(tracks: Sequence[Track], attack: str, *, name: str) -> ReportFigure:
    return svg_picture(
        lambda: charts.trade_off(tracks, attack=attack),
        name=name,
        title=f"Accuracy–robustness trade-off: {attack}",
        caption="Lines connect the predictions of a model, or one recipe at several λ. Up and to the right is better.",
    )


def trade_off_tracks(entries: Sequence[Entry], attack: str) -> list[Track]:
    """One track per model with several views, and one per view over runs that differ in λ."""
    known = [entry for entry in entries if "clean" in entry.summary and attack in entry.summary]
    several = [entry for entry in known if entry.view]
    weights = {entry.run.number: trade_off_weight(entry.run) for entry in several}
    if len({weight for weight in weights.values() if weight is not None}) > 1:
        return [_weight_track(place, view, several, weights, attack) for place, view in enumerate(_views(several))]
    tracks = []
    for run in dict.fromkeys(entry.run.number for entry in several):
        own = [entry for entry in several if entry.run.number == run]
        points = [(entry.view, entry.summary["clean"].value, entry.summary[attack].value) for entry in own]
        tracks.append(Track(own[0].name, run, sorted(points, key=lambda point: point[2])))
    plain = [entry for entry in known if not entry.view]
    return tracks and tracks + [
        Track(entry.name, entry.run.number, [("", entry.summary["clean"].value, entry.summary[attack].value)])
        for entry in plain
    ]


def trade_off_weight(run: Run) -> float | None:
    """Weight of a run's last phase (TORA's λ), if the recipe has one."""
    train = run.recipe.get("train")
    phases = train.get("phases") if isinstance(train, Mapping) else None
    weights = phases.get("weights") if isinstance(phases, Mapping) else None
    alone = isinstance(weights, Sequence) and len(weights) == 1 and isinstance(weights[0], int | float)
    return float(weights[0]) if weights and alone else None


def _views(entries: Sequence[Entry]) -> list[str]:
    return list(dict.fromkeys(entry.view for entry in entries))


def _weight_track(
    place: int, view: str, entries: Sequence[Entry], weights: Mapping[int, float | None], attack: str
) -> Track:
    own = [entry for entry in entries if entry.view == view and weights[entry.run.number] is not None]
    own = sorted(own, key=lambda entry: weights[entry.run.number] or 0.0)
    points = [
        (f"λ {weights[entry.run.number]:g}", entry.summary["clean"].value, entry.summary[attack].value) for entry in own
    ]
    return Track(view, place, points)


Curve = dict[int, NDArray[np.float64]]  # by severity, 0 for clean: the value, then its jackknife replicates; percent


def set_curves(data: DataSet, *, anchor: str) -> list[ReportFigure]:
    """Draw score and retention by severity for tasks that score whole cells; else nothing."""
    task: Any = task_named(data.task)
    if getattr(task, "cell_replicates", None) is None:
        return []
    curves = [(entry, curve) for entry in data.shown_models if len(curve := _curve(entry, task)) > 1]
    kept = [(entry, _retention_curve(curve)) for entry, curve in curves if _retention_curve(curve)]
    over = "Mean over the corruptions at each severity. Bands: 95 % intervals over the choice of images."
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
            caption=f"{_capital(what)} divided by that of the clean images. Bands: 95 % intervals.",
        ),
    ]


def _picture(
    curves: Sequence[tuple[Entry, Curve]], what: str, *, scale: Scale, name: str, title: str, caption: str
) -> list[ReportFigure]:
    lines = [_line(entry, curve, scale) for entry, curve in curves]
    if not lines:
        return []
    return [svg_picture(lambda: charts.severity_curves(lines, what=what), name=name, title=title, caption=caption)]


def _curve(entry: Entry, task: Any) -> Curve:
    """Severities that were measured for all corruptions."""
    cells = {c.spec: c for c in entry.records.cells.values() if c.spec.family in ("clean", "corruption") and len(c)}
    kinds = {spec.kind for spec in cells if spec.family == "corruption"}
    severities = [s for s in sorted({spec.severity for spec in cells}) if s == 0 or _complete(cells, kinds, s)]
    if not kinds or not severities:
        return {}
    replicates = 100 * _replicates(cells, task)
    rows = {spec: replicates[place] for place, spec in enumerate(cells)}
    return {s: np.mean([row for spec, row in rows.items() if spec.severity == s], axis=0) for s in severities}


def _replicates(cells: dict[Any, CellRecord], task: Any) -> NDArray[np.float64]:
    """Value and replicates of every cell; the value alone if the cells hold different images."""
    named = {spec.name: cell for spec, cell in cells.items()}
    first = next(iter(cells.values()))
    if any(not np.array_equal(cell.ids, first.ids) for cell in cells.values()):
        return np.array(task.cell_values(named))[:, None]
    return np.asarray(task.cell_replicates(named, image_groups(first.ids)))


def _complete(cells: dict[Any, CellRecord], kinds: set[str], severity: int) -> bool:
    return {spec.kind for spec in cells if spec.family == "corruption" and spec.severity == severity} == kinds


def _retention_curve(curve: Curve) -> Curve:
    if 0 not in curve or not curve[0][0] > 0:
        return {}
    clean = np.where(curve[0] > 0, curve[0], np.nan)
    return {severity: 100 * values / clean for severity, values in curve.items() if severity}


def _line(entry: Entry, curve: Curve, scale: Scale) -> ChartLine:
    groups = image_groups(next(iter(entry.records.cells.values())).ids)
    bounds = [_bounds(values, scale, groups) for values in curve.values()]
    known = all(len(values) > 1 for values in curve.values())
    low, high = ([b.low for b in bounds], [b.high for b in bounds]) if known else ([], [])
    return ChartLine(entry.name, entry.run.number, list(curve), [b.value for b in bounds], low, high)


def _bounds(values: NDArray[np.float64], scale: Scale, groups: Groups) -> Interval:
    return score_interval(values, scale=scale, images=groups.independent, whole=100, highest_at_zero=0.0)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
