"""Forest plot: paired differences of several models from one, by kind, on one shared axis."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from holdfast.metrics.intervals import Interval
from holdfast.plotting.style import colour, marker
from holdfast.plotting.svg import CARD, INK, LINE, MUTED, set_tooltips
from holdfast.reporting.figures.charts import add_legend, short_name
from holdfast.reporting.formatting import difference_text, number, signed

ROW, MODEL = 0.08, 0.11  # inches: the space of a row, and of each model in it
WIDTH, TALL = 5.6, 10.0  # inches: of a panel, and from where on there are two
FENCE = 3.0  # interquartile ranges beyond the quartiles; what lies farther is clipped


@dataclass(frozen=True)
class ForestModel:
    """A model of a forest plot; ``number`` determines colour and marker."""

    label: str
    number: int


@dataclass(frozen=True)
class ForestRow:
    """One kind: differences by model, as far as they are known; a row without differences is a heading."""

    label: str
    differences: Mapping[str, Interval]

    @property
    def is_heading(self) -> bool:
        """Whether the row names a group."""
        return not self.differences


def forest(rows: Sequence[ForestRow], models: Sequence[ForestModel], *, baseline: str) -> Figure:
    """Draw the differences in points; filled markers leave out zero, arrows stand for what is clipped."""
    parts = panels(rows, models)
    height = max(_total(part, models) for part in parts)
    figure = Figure(figsize=(WIDTH * len(parts), 0.75 + height), layout="constrained")
    limits = clip_limits([i for row in rows for i in row.differences.values()])
    every = figure.subplots(1, len(parts), squeeze=False)[0]
    for axes, part in zip(every, parts, strict=True):
        _draw_panel(axes, part, models, limits)
        axes.set_ylim(height + 0.05, -0.06)
        axes.set_xlabel(f"worse than {short_name(baseline)}  ←  points  →  better")
    if len(models) > 1:
        add_legend(figure, every[0], most=4 * len(parts))
    return figure


def panels(rows: Sequence[ForestRow], models: Sequence[ForestModel]) -> list[Sequence[ForestRow]]:
    """The rows of each panel: two panels of about one height beside each other where one would be tall."""
    heads = [place for place, row in enumerate(rows) if row.is_heading and place]
    if _total(rows, models) <= TALL or not heads:
        return [rows]
    cut = min(heads, key=lambda place: max(_total(rows[:place], models), _total(rows[place:], models)))
    return [rows[:cut], rows[cut:]]


def _draw_panel(
    axes: Axes, rows: Sequence[ForestRow], models: Sequence[ForestModel], limits: tuple[float, float]
) -> None:
    places = _places(rows, models)
    for position, model in enumerate(models):
        _draw_model(axes, rows, places, model, (position, len(models)), limits)
    axes.axvline(0, color=MUTED, linewidth=1.0, zorder=1)
    axes.set_yticks(places, [row.label for row in rows])
    for row, text, place in zip(rows, axes.get_yticklabels(), places, strict=True):
        if row.is_heading:
            text.set(fontweight="bold", color=INK)
            axes.axhline(place, color=LINE, linewidth=0.8, zorder=0)
    axes.set_xlim(*limits)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.spines["bottom"].set_color(LINE)


def clip_limits(intervals: Sequence[Interval]) -> tuple[float, float]:
    """Limits of the axis that hold zero, all values but outliers, and not much more than the intervals need."""
    known = [each for each in intervals if np.isfinite(each.value)]
    if not known:
        return -1.0, 1.0
    values = np.array([each.value for each in known])
    first, third = np.percentile(values, [25, 75])
    reach = FENCE * max(third - first, 0.5)
    inside = values[(values >= first - reach) & (values <= third + reach)]
    span = max(float(inside.max(initial=0) - inside.min(initial=0)), 1.0)
    bounds = np.array([b for each in known for b in (each.low, each.high) if np.isfinite(b)])
    low = max(min(float(bounds.min(initial=0)), 0.0), float(inside.min(initial=0)) - 0.75 * span)
    high = min(max(float(bounds.max(initial=0)), 0.0), float(inside.max(initial=0)) + 0.75 * span)
    pad = 0.06 * max(high - low, 1.0)
    return low - pad, high + pad


def _height(row: ForestRow, models: Sequence[ForestModel]) -> float:
    return 0.22 if row.is_heading else ROW + MODEL * max(1, len(models))


def _total(rows: Sequence[ForestRow], models: Sequence[ForestModel]) -> float:
    return sum(_height(row, models) for row in rows)


def _places(rows: Sequence[ForestRow], models: Sequence[ForestModel]) -> list[float]:
    ends = np.cumsum([_height(row, models) for row in rows])
    return [float(end - _height(row, models) / 2) for row, end in zip(rows, ends, strict=True)]


def _draw_model(
    axes: Axes,
    rows: Sequence[ForestRow],
    places: Sequence[float],
    model: ForestModel,
    position: tuple[int, int],
    limits: tuple[float, float],
) -> None:
    """Draw one model's intervals and markers; what leaves out zero is filled."""
    shade, shape = colour(model.number), marker(model.number)
    offset = MODEL * (position[0] - (position[1] - 1) / 2)
    low, high = limits
    own = [
        (row.label, place + offset, row.differences[model.label])
        for row, place in zip(rows, places, strict=True)
        if model.label in row.differences
    ]
    drawn = [(label, y, each) for label, y, each in own if np.isfinite(each.value)]
    bars = [
        (y, max(i.low, low), min(i.high, high))
        for _, y, i in drawn
        if np.isfinite(i.low) and i.high > low and i.low < high
    ]
    if bars:
        ys, lows, highs = zip(*bars, strict=True)
        axes.hlines(ys, lows, highs, color=shade, linewidth=1.5, label=f"_{model.label}")
    for filled in (True, False):
        chosen = [each for each in drawn if each[2].excludes_zero is filled and low <= each[2].value <= high]
        (line,) = axes.plot(
            [each[2].value for each in chosen],
            [each[1] for each in chosen],
            marker=shape,
            markersize=5,
            linestyle="none",
            color=shade,
            markerfacecolor=shade if filled else CARD,
            label=model.label if filled else f"_{model.label}",
            zorder=3,
        )
        set_tooltips(line, [f"{label}: {model.label}\n{difference_text(each)} points" for label, _, each in chosen])
    for label, y, each in drawn:
        if not low <= each.value <= high:
            right = each.value > high
            (arrow,) = axes.plot(
                high if right else low,
                y,
                marker=">" if right else "<",
                markersize=5,
                color=shade,
                label=f"_{model.label}",
                clip_on=False,
            )
            set_tooltips(arrow, [f"{label}: {model.label}\n{difference_text(each)} points"])
            axes.annotate(
                signed(each.value),
                (high if right else low, y),
                xytext=(-7 if right else 7, 0),
                textcoords="offset points",
                ha="right" if right else "left",
                va="center",
                fontsize=8,
                color=INK,
                label=f"_{model.label}",
            )


def forest_rows(rows: Sequence[ForestRow], *, baseline: str) -> list[list[object]]:
    """The numbers of the plot: one line per kind and model, headings first."""
    found: list[list[object]] = [["kind", "model", "baseline", "difference", "low", "high"]]
    for row in rows:
        for label, each in row.differences.items():
            found.append(
                [
                    row.label,
                    label,
                    baseline,
                    *(number(v, digits=4).replace("−", "-") for v in (each.value, each.low, each.high)),
                ]
            )
    return found
