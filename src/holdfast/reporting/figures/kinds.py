"""Figures with a row per kind of image: accuracy by domain, shape bias by class of shape."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from holdfast.metrics.intervals import Interval
from holdfast.metrics.summary import Score
from holdfast.plotting.style import colour, marker
from holdfast.plotting.svg import LINE, set_tooltips
from holdfast.reporting.comparable import DataSet, Entry
from holdfast.reporting.figures.charts import WIDTH, Point, ReportFigure, add_legend, svg_picture
from holdfast.reporting.formatting import kind_label, number, span

ROW, MARGIN = 0.24, 0.9  # inches


@dataclass(frozen=True)
class KindTable:
    """A table of scores by kind that has a figure.

    Attributes:
        table: table of the scores.
        title: title of the figure.
        axis: label of the axis.
        overall: score of all kinds, drawn as a line; empty for none.
        caption: what is drawn.
    """

    table: str
    title: str
    axis: str
    overall: str
    caption: str


TABLES = (
    KindTable(
        "domain",
        "Accuracy by domain",
        "accuracy, %",
        "mean_domain_accuracy",
        "Clean images of every domain, with 95 % intervals. Dotted: the mean over the domains.",
    ),
    KindTable(
        "shape_bias",
        "Shape bias by class of shape",
        "answers with the shape, % of those with either cue",
        "shape_bias",
        "Cue conflict stimuli, with 95 % intervals over content images. Dotted: all of them. The rest is texture.",
    ),
)


def kind_figures(data: DataSet, *, anchor: str) -> list[ReportFigure]:
    """Draw every table of `TABLES` that the models of a data set have."""
    return [figure for kind in TABLES if (figure := _figure(data, kind, name=f"{anchor}-{kind.table}")) is not None]


def _figure(data: DataSet, kind: KindTable, *, name: str) -> ReportFigure | None:
    scores = {entry: [s for s in entry.summary if s.table == kind.table] for entry in data.shown_models}
    shown = {entry: found for entry, found in scores.items() if found}
    names = list(dict.fromkeys(score.kind for found in shown.values() for score in found))
    if not names:
        return None
    points = {entry: [_point(entry, score, names) for score in found] for entry, found in shown.items()}
    rows = [
        [names[int(point.x)], point.label, *(f"{v:.6g}" for v in (point.y.value, point.y.low, point.y.high))]
        for found in points.values()
        for point in found
    ]
    head = [kind.table.replace("_", " "), "model", "value", "low", "high"]
    return svg_picture(
        lambda: draw_kinds(points, names, kind),
        name=name,
        title=kind.title,
        caption=kind.caption,
        rows=[head, *rows],
    )


def _point(entry: Entry, score: Score, names: Sequence[str]) -> Point:
    place = float(names.index(score.kind))
    return Point(entry.name, entry.run.number, place, Interval(score.value, score.low, score.high, 0.95))


def draw_kinds(points: dict[Entry, list[Point]], names: Sequence[str], kind: KindTable) -> Figure:
    """Draw a row per kind, with a marker and an interval per model."""
    figure = Figure(figsize=(WIDTH, MARGIN + ROW * len(names) * max(1, len(points) / 2)), layout="constrained")
    axes = figure.subplots()
    axes.spines[["bottom", "left"]].set_color(LINE)
    for position, (entry, found) in enumerate(points.items()):
        shade, shape = colour(entry.run.number), marker(entry.run.number)
        offset = 0.7 * (position - (len(points) - 1) / 2) / max(1, len(points))
        there = [point for point in found if point.y.value == point.y.value]
        places = [point.x + offset for point in there]
        bounds = [(point.y.low, point.y.high) for point in there]
        axes.hlines(places, [low for low, _ in bounds], [high for _, high in bounds], color=shade, linewidth=1.4,
                    label=f"_{entry.name}")  # fmt: skip
        (line,) = axes.plot(
            [point.y.value for point in there],
            places,
            marker=shape,
            markersize=5,
            linestyle="none",
            color=shade,
            label=entry.name,
        )
        texts = [f"{number(point.y.value)} %, {span(point.y.low, point.y.high)}" for point in there]
        labels = [f"{kind_label(names[int(point.x)])}: {entry.name}" for point in there]
        set_tooltips(line, [f"{label}\n{text}" for label, text in zip(labels, texts, strict=True)])
        if kind.overall in entry.summary:
            at = entry.summary[kind.overall].value
            axes.axvline(at, color=shade, linewidth=1, linestyle=":", label=f"_{entry.name}")
    axes.set_yticks(range(len(names)), [kind_label(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, 100)
    axes.set_xlabel(kind.axis)
    if len(points) > 1:
        add_legend(figure, axes)
    return figure
