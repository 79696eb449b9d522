"""The figures of one data set: accuracy or retention by severity, retention by cost, clean against attacked."""

from collections.abc import Mapping, Sequence

import numpy as np

from holdfast.corruptions.catalog import SEVERITIES, STANDARD
from holdfast.metrics.intervals import Interval
from holdfast.metrics.intervals import score_interval as interval_of_replicates
from holdfast.metrics.jackknife import image_groups, replicated_means
from holdfast.older_recipes import modern
from holdfast.records.cells import CLEAN, corruption_cell
from holdfast.records.header import CLASSIFICATION
from holdfast.reporting.entries import DataSet, Entry
from holdfast.reporting.figures import charts
from holdfast.reporting.figures.charts import Line, Point, Track
from holdfast.reporting.figures.of_sets import set_curves
from holdfast.reporting.figures.pictures import Picture, svg_picture
from holdfast.reporting.runs import Run


def data_figures(data: DataSet, *, anchor: str) -> list[Picture]:
    """The figures of one data set: accuracy by severity, retention by cost, clean against attacked."""
    return [
        *(severity_figure(data, anchor=anchor) if data.task == CLASSIFICATION else set_curves(data, anchor=anchor)),
        *cost_figure(data, anchor=anchor),
        *trade_off_figures(data, anchor=anchor),
    ]


def severity_figure(data: DataSet, *, anchor: str) -> list[Picture]:
    """How accuracy falls with severity, for the models that were shown all 75 cells."""
    lines = [line for entry in data.shown if (line := severity_line(entry)) is not None]
    if not lines:
        return []
    caption = "Mean over the 15 kinds at each severity. Bands: 95 % intervals over the choice of images."
    picture = svg_picture(
        lambda: charts.severity_curves(lines), name=f"{anchor}-severity", title="Accuracy by severity", caption=caption
    )
    return [picture]


def severity_line(entry: Entry) -> Line | None:
    """Mean accuracy over the 15 kinds by severity, in percent; None where cells are missing."""
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
    return Line(entry.name, entry.run.number, places, [each.value for each in bounds], low, high)


def cost_figure(data: DataSet, *, anchor: str) -> list[Picture]:
    """Retention against GMACs, or parameters, where both are known of two models or more."""
    shown = [entry for entry in data.shown if "retention" in entry.summary]
    by_gmacs = all(entry.run.gmacs for entry in shown)
    costs = [entry.run.gmacs if by_gmacs else (entry.run.parameters or 0) / 1e6 for entry in shown]
    points = [
        Point(entry.name, entry.run.number, cost, score_interval(entry, "retention"))
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
        caption="Accuracy under corruption by clean accuracy (FAN, Figure 1), against what the model costs.",
    )
    return [picture]


def score_interval(entry: Entry, name: str) -> Interval:
    """A score's value and bounds."""
    score = entry.summary[name]
    return Interval(score.value, score.low, score.high, 0.95)


def trade_off_figures(data: DataSet, *, anchor: str, most: int = 3) -> list[Picture]:
    """Clean accuracy against accuracy under an attack, for models of several predictions or several λ."""
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


def _trade_off(tracks: Sequence[Track], attack: str, *, name: str) -> Picture:
    return svg_picture(
        lambda: charts.trade_off(tracks, attack=attack),
        name=name,
        title=f"Accuracy against robustness: {attack}",
        caption="Predictions of one model, or one recipe at several λ, are joined. Up and to the right is better.",
    )


def trade_off_tracks(entries: Sequence[Entry], attack: str) -> list[Track]:
    """One track per model with several views; one per view over runs that differ in λ."""
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
    """The weight of a run's last phase (TORA's λ), where the recipe has one."""
    train = modern(run.recipe).get("train")
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
