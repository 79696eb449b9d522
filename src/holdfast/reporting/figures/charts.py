"""Charts of the report: functions from numbers to matplotlib figures. Scores are in percent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import nan

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from holdfast.metrics.intervals import Interval
from holdfast.plotting.style import colour, marker
from holdfast.plotting.svg import LINE, draw_svg, set_tooltips
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
    _legend(axes, lines)
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
    _legend(axes, points)
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
    _legend(axes, tracks)
    return figure


def curves(lines: Sequence[ChartLine], *, x: str, y: str) -> Figure:
    """Plot a training value against steps or epochs, without smoothing."""
    figure, axes = _one_axes(height=2.5)
    for line in lines:
        dots = "o" if len(line.x) < 3 else ""
        axes.plot(line.x, line.y, color=colour(line.number), label=line.label, marker=dots)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    _legend(axes, lines)
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


def _legend(axes: Axes, entries: Sequence[ChartLine | Point | Track]) -> None:
    if entries:
        columns = 1 if max(len(entry.label) for entry in entries) > 18 else min(3, len(entries))
        axes.figure.legend(loc="outside upper left", ncols=columns, handlelength=1.4, columnspacing=1.2)
