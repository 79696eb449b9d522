"""Charts of the report: functions from numbers to matplotlib figures. Scores are in percent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import nan

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.optimize import isotonic_regression

from holdfast.metrics.intervals import Interval
from holdfast.plotting.style import colour, line_look, marker
from holdfast.plotting.svg import INK, LINE, draw_svg, set_tooltips
from holdfast.reporting.formatting import number, span


@dataclass(frozen=True)
class ReportFigure:
    """An SVG figure; ``wide`` ones take the whole width of the page, those ``aside`` are collapsed.

    ``draw`` draws it again for files, and ``rows`` are its numbers, headings first; empty if they are read off it.
    """

    name: str
    title: str
    svg: Markup
    caption: str = ""
    wide: bool = False
    aside: bool = False
    draw: Callable[[], Figure] | None = None
    rows: Sequence[Sequence[object]] = ()

    @property
    def width(self) -> int:
        """Its own width in points."""
        return round(float(self.svg.partition('viewBox="')[2].split()[2]))


def svg_picture(
    draw: Callable[[], Figure],
    *,
    name: str,
    title: str,
    caption: str = "",
    wide: bool = False,
    aside: bool = False,
    rows: Sequence[Sequence[object]] = (),
) -> ReportFigure:
    """Draw a figure as SVG in the page's style."""
    svg = draw_svg(draw, name=name, description=title)
    return ReportFigure(name, title, svg, caption, wide=wide, aside=aside, draw=draw, rows=rows)


MOST_LABELS, LONGEST = 9, 18  # names beside lines, and their letters
LONGEST_SHOWN = 31  # letters of a name in a legend
LETTER, ENTRY, LEGEND_LINE = 0.073, 0.4, 0.165  # inches: of a legend's letter, marker with space, and line
WIDTH = 4.6  # inches: about a phone's width, so that text stays readable there; wide pages put figures side by side


@dataclass(frozen=True)
class ChartLine:
    """A curve with an optional band from ``low`` to ``high``; ``number`` determines the colour."""

    label: str
    number: int
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class Point:
    """A labelled point with an interval."""

    label: str
    number: int
    x: float
    y: Interval


@dataclass(frozen=True)
class Track:
    """Connected points, such as the predictions of one TORA model."""

    label: str
    number: int
    points: Sequence[tuple[str, float, float]] = field(default_factory=tuple)


def severity_curves(lines: Sequence[ChartLine], *, what: str = "accuracy") -> Figure:
    """Plot the mean score over corruptions against severity; severity 0 is the clean images."""
    figure, axes = _one_axes(height=3.0)
    for line in lines:
        shade = colour(line.number)
        shape = marker(line.number)
        (drawn,) = axes.plot(line.x, line.y, color=shade, marker=shape, markersize=4.5, label=line.label)
        if line.low:
            band = f"_{line.label}"  # hidden together with its line, and not in the legend
            axes.fill_between(line.x, line.low, line.high, color=shade, alpha=0.15, linewidth=0, label=band)
            set_tooltips(drawn, _severities(line))
    ticks = sorted({int(value) for line in lines for value in line.x})
    axes.set_xticks(ticks, ["clean" if tick == 0 else str(tick) for tick in ticks])
    axes.set_xlabel("severity")
    axes.set_ylabel(f"{what}, %")
    label_lines(axes, lines)
    return figure


def line_rows(lines: Sequence[ChartLine], *, x: str = "severity", y: str = "value") -> list[list[object]]:
    """The numbers of curves with bands: one row per point, headings first."""
    found: list[list[object]] = [["model", x, y, "low", "high"]]
    for line in lines:
        bounds = zip(line.low, line.high, strict=True) if line.low else ((nan, nan) for _ in line.x)
        for at, value, (low, high) in zip(line.x, line.y, bounds, strict=True):
            found.append([line.label, *(f"{each:.6g}" for each in (at, value, low, high))])
    return found


def point_rows(points: Sequence[Point], *, x: str, y: str) -> list[list[object]]:
    """The numbers of points with intervals: one row each, headings first."""
    found: list[list[object]] = [["model", x, y, "low", "high"]]
    found += [[p.label, *(f"{v:.6g}" for v in (p.x, p.y.value, p.y.low, p.y.high))] for p in points]
    return found


def cost_scatter(points: Sequence[Point], *, cost: str) -> Figure:
    """Plot retention against cost (FAN, Figure 1)."""
    figure, axes = _one_axes(height=3.0)
    for point in points:
        shade = colour(point.number)
        bounds, whiskers = [point.y.low, point.y.high], f"_{point.label}"
        axes.plot([point.x, point.x], bounds, color=shade, linewidth=1.4, alpha=0.6, label=whiskers)
        shape = marker(point.number)
        axes.plot(point.x, point.y.value, marker=shape, markersize=6, color=shade, linestyle="none", label=point.label)
    axes.margins(x=0.25)
    axes.set_xlabel(cost)
    axes.set_ylabel("retention, %")
    add_legend(figure, axes)
    return figure


def trade_off(tracks: Sequence[Track], *, attack: str) -> Figure:
    """Plot clean accuracy against accuracy under an attack."""
    figure, axes = _one_axes(height=3.4)
    for track in tracks:
        shade = colour(track.number)
        clean, robust = ([point[at] for point in track.points] for at in (1, 2))
        axes.plot(
            robust, clean, color=shade, marker=marker(track.number), markersize=5, linewidth=1.2, label=track.label
        )
        for (label, _, _), x, y in zip(track.points, robust, clean, strict=True):
            axes.annotate(label, (x, y), xytext=(5, 4), textcoords="offset points", fontsize=8, parse_math=False)
    axes.margins(0.15)
    axes.set_xlabel(f"accuracy under {attack}, %")
    axes.set_ylabel("clean accuracy, %")
    add_legend(figure, axes)
    return figure


def curves(lines: Sequence[ChartLine], *, x: str, y: str) -> Figure:
    """Plot a training value against steps or epochs, without smoothing."""
    figure, axes = _one_axes(height=2.5)
    for line in lines:
        axes.plot(line.x, line.y, label=line.label, **line_look(line.number, len(line.x)))
    if len({x for line in lines for x in line.x}) == 1:
        axes.set_xticks([lines[0].x[0]])
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    label_lines(axes, lines)
    return figure


def _severities(line: ChartLine) -> list[str]:
    points = zip(line.x, line.y, line.low, line.high, strict=True)
    return [
        f"{line.label}\n{f'severity {x:.0f}' if x else 'clean'}: {number(y)} %\n{span(low, high)}"
        for x, y, low, high in points
    ]


def _one_axes(*, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots()
    axes.spines["bottom"].set_color(LINE)
    axes.spines["left"].set_color(LINE)
    return figure, axes


def label_lines(axes: Axes, lines: Sequence[ChartLine]) -> None:
    """Write the names at the ends of the lines; names that are long or many stand in a legend."""
    ends = [(line, line.x[-1], line.y[-1]) for line in lines if len(line.x) and np.isfinite(line.y[-1])]
    if not 1 <= len(lines) <= MOST_LABELS or len(ends) < len(lines) or max(len(each.label) for each in lines) > LONGEST:
        assert isinstance(axes.figure, Figure)
        return add_legend(axes.figure, axes)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    height = 0.75 * 72 * axes.figure.get_figheight()  # points, about
    places = [height * (y - low) / (high - low) for _, _, y in ends]
    for (line, x, y), place, shown in zip(ends, places, spread(places, gap=10.5), strict=True):
        axes.annotate(
            line.label,
            (x, y),
            xytext=(7, shown - place),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=INK,
            parse_math=False,
            label=f"_{line.label}",
        )


def spread(places: Sequence[float], *, gap: float) -> list[float]:
    """Move places apart to at least ``gap``, in order and as little as possible (least squares)."""
    order = np.argsort(places, kind="stable")
    steps = gap * np.arange(len(places))
    moved = np.empty(len(places))
    moved[order] = isotonic_regression(np.asarray(places, dtype=float)[order] - steps).x + steps
    return moved.tolist()


def short_name(label: str) -> str:
    """The name of a model as in a figure: both ends of a long one."""
    kept = (LONGEST_SHOWN - 1) // 2
    return label if len(label) <= LONGEST_SHOWN else f"{label[:kept]}…{label[-kept:]}"


def add_legend(figure: Figure, axes: Axes, *, most: int = 4) -> None:
    """Put the names above the axes; the figure grows by their lines, so that the axes keep their height."""
    handles, labels = axes.get_legend_handles_labels()
    if not labels:
        return
    names = [short_name(label) for label in labels]
    columns = next(n for n in range(min(most, len(names)), 0, -1) if n == 1 or _width(names, n) < figure.get_figwidth())
    drawn = figure.legend(handles, names, loc="outside upper left", ncols=columns, handlelength=1.4, columnspacing=1.2)
    for text, label in zip(drawn.get_texts(), labels, strict=True):
        text.set_label(label)  # the page hides a model by its whole name
    if len(names) > columns:
        figure.set_figheight(figure.get_figheight() + LEGEND_LINE * -(-len(names) // columns))


def _width(names: Sequence[str], columns: int) -> float:
    """Width of a legend in inches; it fills one column after the other."""
    longest = (max(map(len, part)) for part in np.array_split(np.asarray(names, dtype=object), columns))
    return sum(ENTRY + LETTER * letters for letters in longest)
