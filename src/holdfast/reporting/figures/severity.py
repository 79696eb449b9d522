"""Figures of a data set: score by severity, retention by cost, accuracy–robustness trade-off."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.cells import CellSpec
from holdfast.corruptions.severities import SEVERITIES
from holdfast.metrics.corruption import mean_of, percent_of_clean
from holdfast.metrics.intervals import Interval, Scale, score_interval
from holdfast.metrics.replicates import replicate_cells, used_images
from holdfast.metrics.scoring.registry import scoring_of
from holdfast.metrics.summary import image_choice
from holdfast.reporting.comparable import DataSet, Entry
from holdfast.reporting.figures import charts
from holdfast.reporting.figures.charts import ChartLine, Point, ReportFigure, Track, line_rows, svg_picture
from holdfast.reporting.figures.kinds import kind_figures
from holdfast.reporting.formatting import title_of
from holdfast.reporting.quantities import words_of
from holdfast.reporting.runs import Run


@dataclass(frozen=True)
class SeverityCurve:
    """A model's score by severity.

    Attributes:
        entry: the model.
        values: by severity, 0 for clean images: the score in percent, then its jackknife replicates.
        images: number of independent images.
    """

    entry: Entry
    values: Mapping[int, NDArray[np.float64]]
    images: int

    def retained(self) -> "SeverityCurve":
        """The curve in percent of the clean score; empty without one."""
        clean = self.values.get(0, np.zeros(1))
        corrupted = {severity: values for severity, values in self.values.items() if severity and clean[0] > 0}
        kept = {severity: np.asarray(percent_of_clean(values, clean)) for severity, values in corrupted.items()}
        return SeverityCurve(self.entry, kept, self.images)

    def line(self, scale: Scale) -> ChartLine:
        """The curve with the bounds of its intervals."""
        bounds = [
            score_interval(values, scale=scale, images=self.images, whole=100, highest_at_zero=0.0)
            for values in self.values.values()
        ]
        low, high = [each.low for each in bounds], [each.high for each in bounds]
        return ChartLine(
            self.entry.name, self.entry.run.number, list(self.values), [each.value for each in bounds], low, high
        )


def data_figures(data: DataSet, *, anchor: str) -> list[ReportFigure]:
    """Draw the figures of one data set: score by severity, retention by cost, clean vs. attacked."""
    return [
        *severity_figures(data, anchor=anchor),
        *kind_figures(data, anchor=anchor),
        *cost_figure(data, anchor=anchor),
        *trade_off_figures(data, anchor=anchor),
    ]


def severity_figures(data: DataSet, *, anchor: str) -> list[ReportFigure]:
    """Draw the score by severity, and for tasks that score whole cells what is retained of the clean score."""
    curves = [curve for entry in data.shown_models if (curve := severity_curve(entry)) is not None]
    scoring = scoring_of(data.task)
    what = scoring.cell_words
    kinds = f"{len(scoring.curve_kinds)} corruptions" if scoring.curve_kinds else "corruptions"
    over = f"Mean over the {kinds} at each severity. Bands: 95 % intervals over the choice of images."
    title = title_of(what) or "Accuracy"
    figures = _picture(curves, what, "proportion", f"{anchor}-severity", f"{title} by severity", over)
    if not what:
        return figures
    kept = [retained for curve in curves if len((retained := curve.retained()).values) > 1]  # one point is no curve
    caption = f"{title} divided by that of the clean images. Bands: 95 % intervals."
    return figures + _picture(
        kept, f"{what} retained", "ratio", f"{anchor}-retention", "Retention by severity", caption
    )


def _picture(
    curves: Sequence[SeverityCurve], what: str, scale: Scale, name: str, title: str, caption: str
) -> list[ReportFigure]:
    lines = [curve.line(scale) for curve in curves]
    options = {"what": what} if what else {}
    draw = lambda: charts.severity_curves(lines, **options)  # noqa: E731
    return [svg_picture(draw, name=name, title=title, caption=caption, rows=line_rows(lines))] if lines else []


def severity_curve(entry: Entry) -> SeverityCurve | None:
    """The mean score over the corruptions by severity, where all were measured; None if there is no such severity.

    For classification over the 15 corruptions of ImageNet-C at all five severities.
    """
    scoring = scoring_of(entry.records.task)
    published, known_scores = scoring.curve_kinds, scoring.cell_scores(entry.records.header)
    if not known_scores:
        return None
    cells = {name: cell for name, cell in entry.records.cells.items() if len(cell) and _is_drawn(cell.spec, published)}
    kinds = set(published) if published else {cell.spec.kind for cell in cells.values()} - {""}
    complete = [
        s for s in SEVERITIES if {cell.spec.kind for cell in cells.values() if cell.spec.severity == s} == kinds
    ]
    if not kinds or not complete or (published and len(complete) < len(SEVERITIES)):
        return None
    used, score = used_images(cells, images=image_choice(entry.records)), next(iter(known_scores.values()))
    groups = used.groups()
    replicates = replicate_cells(cells, used, groups)
    if not replicates.keys() >= set(score.reads(*cells)):  # images without objects have no AP
        return None
    names = {s: [name for name, cell in cells.items() if cell.spec.severity == s] for s in (0, *complete)}
    values = {
        s: 100 * np.asarray(mean_of([score.of(replicates, cell) for cell in each])) for s, each in names.items() if each
    }
    return SeverityCurve(entry, values, groups.independent) if len(values) > 1 else None


def _is_drawn(cell: CellSpec, kinds: Sequence[str]) -> bool:
    return cell.family == "clean" or (cell.family == "corruption" and (not kinds or cell.kind in kinds))


def cost_figure(data: DataSet, *, anchor: str) -> list[ReportFigure]:
    """Draw retention against GMACs or parameters if known and not the same for all."""
    shown = [entry for entry in data.shown_models if "retention" in entry.summary]
    by_gmacs = all(entry.run.gmacs for entry in shown)
    costs = [entry.run.gmacs if by_gmacs else (entry.run.parameters or 0) / 1e6 for entry in shown]
    points = [
        Point(entry.name, entry.run.number, cost, entry_interval(entry, "retention"))
        for entry, cost in zip(shown, costs, strict=True)
        if cost
    ]
    if len({point.x for point in points}) < 2:  # at one cost the table says it all
        return []
    words = title_of(words_of(data.task))
    axis = "GMACs per image" if by_gmacs else "parameters, millions"
    picture = svg_picture(
        lambda: charts.cost_scatter(points, cost=axis),
        name=f"{anchor}-cost",
        title="Retention against cost",
        caption=f"{words} under corruption divided by that on clean images (FAN, Figure 1), against the model's cost.",
        rows=charts.point_rows(points, x=axis, y="retention"),
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
