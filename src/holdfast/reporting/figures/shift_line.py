"""Accuracy on the data as they are against accuracy under shift, with effective robustness (Taori et al. 2020).

Both accuracies are put on the logit scale, where those of many models lie on a line (Miller et al. 2021). The effective
robustness of a model is what it has under shift beyond the line through all *other* models, in points. Its interval
leaves out the same groups of images of all models, and fits the line anew each time. A model with an accuracy of 0 or
100 % has no logit and is left out of the lines.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from holdfast.errors import HoldfastError
from holdfast.metrics.intervals import Interval, difference_interval
from holdfast.metrics.replicates import replicate_cells, used_images
from holdfast.metrics.summary import formulas_of, image_choice, reference_for
from holdfast.plotting.style import colour, marker
from holdfast.plotting.svg import MUTED, set_tooltips
from holdfast.records.records import CellRecord
from holdfast.reporting.comparable import DataSet, Entry
from holdfast.reporting.figures.charts import ReportFigure, short_name, spread, svg_picture
from holdfast.reporting.formatting import difference_text, number
from holdfast.reporting.quantities import words_of

LEAST = 8  # models for a line
HEIGHT = 0.85 * 3.6 * 72  # of the axes in points, about
EDGE = 0.1  # percent: a replicate of 0 or 100 has no logit


@dataclass(frozen=True)
class ShiftPoint:
    """One model: accuracy on clean images and under shift in percent, and its effective robustness in points."""

    entry: Entry
    clean: float
    shifted: float
    effective: Interval


def shift_line_figure(data: DataSet, *, anchor: str) -> list[ReportFigure]:
    """Draw the figure for eight models or more with clean and corrupted accuracy on the same images; else nothing."""
    points = shift_points(data)
    if not points:
        return []
    by = data.ranked_by
    label = by.label if by is not None else ""
    rows: list[list[object]] = [["model", "clean", label, "effective robustness", "low", "high"]]
    for p in points:
        rows.append(
            [
                p.entry.name,
                *(f"{v:.4f}" for v in (p.clean, p.shifted, p.effective.value, p.effective.low, p.effective.high)),
            ]
        )
    best = max(points, key=lambda point: point.effective.value)
    fitted = sum(bool(_has_logit([p.clean, p.shifted]).all()) for p in points)
    caption = (
        f"Line: fitted through {fitted} models on the logit scale. Effective robustness is the height of a model "
        f"above the line through the others; highest: {best.entry.name}, {difference_text(best.effective)} points."
    )
    picture = svg_picture(
        lambda: shift_line(points, shifted=label),
        name=f"{anchor}-shift",
        title=f"Clean accuracy against {label}",
        caption=caption,
        rows=rows,
    )
    return [picture]


def shift_points(data: DataSet) -> list[ShiftPoint]:
    """Points of all models whose clean and shifted accuracy are known on common images; empty for fewer than eight."""
    by = data.ranked_by
    if by is None or by.family != "corruption" or by.kind:
        return []
    entries = [entry for entry in data.shown_models if {"clean", by.name} <= set(entry.summary.scores)]
    inside = [_has_logit([entry.summary[name].value for name in ("clean", by.name)]).all() for entry in entries]
    if sum(inside) < LEAST:
        return []
    cells = _common_cells(entries)
    try:
        used = used_images(*cells, images=image_choice(*(entry.records for entry in entries)))
    except HoldfastError:  # no common image
        return []
    groups = used.groups()
    values = []
    for entry, held in zip(entries, cells, strict=True):
        replicates = replicate_cells(held, used, groups)
        reference = reference_for(entry.records, None)
        formulas = {f.name: f for f in formulas_of(entry.records, held, replicates, reference=reference)}
        if by.name not in formulas:  # a partial score over other cells in every model
            return []
        values.append([replicates.score(formulas[name]) for name in ("clean", by.name)])
    array = np.array(values)  # models, clean and shifted, 1 + groups
    gaps = effective_robustness(array[:, 0], array[:, 1])
    return [
        ShiftPoint(entry, float(clean[0]), float(shifted[0]), difference_interval(gap, images=groups.independent))
        for entry, (clean, shifted), gap in zip(entries, array, gaps, strict=True)
    ]


def _common_cells(entries: Sequence[Entry]) -> list[dict[str, CellRecord]]:
    """The cells of every model that all models have."""
    models = [entry.records.cells for entry in entries]
    common = [name for name in models[0] if all(name in cells for cells in models)]
    return [{name: cells[name] for name in common} for cells in models]


def effective_robustness(clean: NDArray[np.float64], shifted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Accuracy under shift above the line through the other models: (models, replicates), percent to points.

    The first replicate is the value on all images; it decides which models are on the lines.
    """
    x, y = logit(clean), logit(shifted)
    inside = _has_logit(clean[:, 0]) & _has_logit(shifted[:, 0])
    gaps = np.empty_like(y)
    for model in range(len(x)):
        others = inside & (np.arange(len(x)) != model)
        slope, height = _line(x[others], y[others])
        gaps[model] = shifted[model] - from_logit(height + slope * x[model])
    return gaps


def _line(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Slope and height of the least-squares line of every column; flat where all x are equal."""
    apart = x - x.mean(axis=0)
    spread = np.square(apart).sum(axis=0)
    slope = np.divide((apart * y).sum(axis=0), spread, out=np.zeros_like(spread), where=spread > 1e-12)
    return slope, y.mean(axis=0) - slope * x.mean(axis=0)


def _has_logit(percent: ArrayLike) -> NDArray[np.bool_]:
    """Whether an accuracy in percent is neither 0 nor 100."""
    return (np.asarray(percent) > 0) & (np.asarray(percent) < 100)


def logit(percent: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logit of percent; 0 and 100 count as a tenth of a percent from the end."""
    share = np.clip(percent, EDGE, 100 - EDGE) / 100
    return np.log(share / (1 - share))


def from_logit(value: NDArray[np.float64]) -> NDArray[np.float64]:
    """Percent of a logit."""
    return np.asarray(100 / (1 + np.exp(-value)))


def shift_line(points: Sequence[ShiftPoint], *, shifted: str) -> Figure:
    """Draw the models on logit axes with the line through all of them."""
    figure = Figure(figsize=(4.6, 3.6), layout="constrained")
    axes = figure.subplots()
    x, y = (np.array([getattr(point, name) for point in points]) for name in ("clean", "shifted"))
    inside = _has_logit(x) & _has_logit(y)
    slope, height = _line(logit(x[inside])[:, None], logit(y[inside])[:, None])
    at = np.linspace(logit(x).min() - 0.1, logit(x).max() + 0.1, 40)
    axes.plot(at, height + slope * at, color=MUTED, linewidth=1.0, label="_line")
    for point in points:
        number_of = point.entry.number
        place = (float(logit(np.array(point.clean))), float(logit(np.array(point.shifted))))
        (dot,) = axes.plot(
            *place,
            marker=marker(number_of),
            color=colour(number_of),
            markersize=6,
            linestyle="none",
            label=point.entry.name,
        )
        text = f"{point.entry.name}\nclean {number(point.clean)}, {shifted} {number(point.shifted)}"
        set_tooltips(dot, [f"{text}\neffective robustness {difference_text(point.effective)}"])
    for axis, known in ((axes.xaxis, x), (axes.yaxis, y)):
        ticks = [
            tick
            for tick in (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99)
            if known.min() - 8 <= tick <= known.max() + 8
        ]
        axis.set_ticks([float(logit(np.array(float(tick)))) for tick in ticks], [str(tick) for tick in ticks])
    axes.margins(x=0.15)
    _label_points(axes, points)
    axes.set_xlabel(f"clean {words_of(points[0].entry.records.task)}, %")
    axes.set_ylabel(f"{shifted}, %")
    return figure


def _label_points(axes: Axes, points: Sequence[ShiftPoint]) -> None:
    """Write the names beside the points, towards the middle; names on one side keep a distance from each other."""
    x, y = (logit(np.array([getattr(point, name) for point in points])) for name in ("clean", "shifted"))
    low, high = axes.get_ylim()
    heights = HEIGHT * (y - low) / (high - low)
    on_right = x <= np.mean(axes.get_xlim())
    for right in (True, False):
        own = np.flatnonzero(on_right == right)
        for place, shown in zip(own.tolist(), spread(heights[own].tolist(), gap=10.0), strict=True):
            axes.annotate(
                short_name(points[place].entry.name),
                (x[place], y[place]),
                xytext=(6 if right else -6, shown - heights[place]),
                textcoords="offset points",
                ha="left" if right else "right",
                va="center",
                fontsize=8,
                parse_math=False,
                label=f"_{points[place].entry.name}",
            ).set_in_layout(False)
