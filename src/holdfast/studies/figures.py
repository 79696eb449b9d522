"""Plots of a study: scores of all runs, differences with intervals, accuracy–robustness trade-off, training logs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from holdfast.plotting.style import colour, legend_above, line_look, marker, note
from holdfast.studies.columns import Column, available, scores, shared_seeds
from holdfast.studies.differences import difference
from holdfast.studies.results import RunResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Results = Mapping[str, Sequence[RunResult]]
BETTER, WORSE, UNCLEAR = (colour(2), "^"), (colour(1), "v"), ("0.5", "o")  # told apart in grey by their markers


def figures(results: Results) -> "dict[str, Figure]":
    """Draw all plots; returns them by name."""
    drawn = {"rows": rows_figure(results), "differences": differences_figure(results)}
    if trade_off_columns(results):
        drawn["trade_off"] = trade_off_figure(results)
    return drawn | ({"training": training_figure(results)} if traced_names(results) else {})


def rows_figure(results: Results) -> "Figure":
    """Draw one panel per column: a dot per seed and a bar for the mean."""
    columns = available(results)
    figure, axes = _panels(len(columns), rows=len(results))
    for axis, column in zip(axes, columns.values(), strict=True):
        _draw_rows(axis, column, results)
    return figure


def _panels(count: int, *, rows: int, share_rows: bool = True) -> "tuple[Figure, list[Axes]]":
    """Create a grid of panels, at most four or five per line, with lines of similar length."""
    from matplotlib.figure import Figure

    deep = -(-max(1, count) // (4 if count <= 8 else 5))
    wide = -(-max(1, count) // deep)
    figure = Figure(figsize=(3.1 * wide, (0.9 + 0.3 * max(1, rows)) * deep), layout="constrained")
    axes = figure.subplots(deep, wide, sharey=share_rows, squeeze=False).ravel()
    for axis in axes[count:]:
        axis.set_visible(False)
    return figure, list(axes[:count])


def _draw_rows(axis: "Axes", column: Column, results: Results) -> None:
    for place, runs in enumerate(results.values()):
        values = [scores(column, [run]).mean for run in runs]
        axis.plot(values, [place] * len(values), "o", color=colour(0), alpha=0.55, markersize=4)
        axis.plot([float(np.mean(values))], [place], "|", color="black", markersize=14, markeredgewidth=2)
    axis.set_yticks(range(len(results)), list(results), fontsize=8)
    axis.set_ylim(len(results) - 0.5, -0.5)
    axis.set_title(f"{column.title} ({'↑' if column.better == 'higher' else '↓'} better)", fontsize=9)
    axis.tick_params(axis="x", labelsize=7)
    axis.grid(axis="x", alpha=0.3)


def differences_figure(results: Results) -> "Figure":
    """Draw the difference of every row from the first with its 95 % interval, one panel per column."""
    columns, (first, *others) = available(results), results
    labels = [f"{row} ({counted_seeds(len(shared_seeds(results[row], results[first])))})" for row in others]
    figure, axes = _panels(len(columns), rows=len(others))
    for axis, column in zip(axes, columns.values(), strict=True):
        for place, row in enumerate(others):
            if not shared_seeds(results[row], results[first]):
                continue
            interval = difference(column, results, row, first)
            good = (interval.value > 0) == (column.better == "higher")
            shade, shape = (BETTER if good else WORSE) if interval.excludes_zero else UNCLEAR
            axis.plot([interval.low, interval.high], [place, place], color=shade, linewidth=2)
            axis.plot([interval.value], [place], shape, color=shade, markersize=6)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_yticks(range(len(others)), labels, fontsize=8)
        axis.set_ylim(max(1, len(others)) - 0.5, -0.5)
        axis.set_title(column.title, fontsize=9)
        axis.tick_params(axis="x", labelsize=7)
        axis.locator_params(axis="x", nbins=5)  # labels such as −0.0025 are wide
        axis.grid(axis="x", alpha=0.3)
    return figure


def trade_off_columns(results: Results) -> list[tuple[Column, Column]]:
    """Pairs of clean accuracy and a robustness column; empty if fewer than two rows can be compared with the first."""
    columns, (first, *others) = available(results), results
    compared = [row for row in others if shared_seeds(results[row], results[first])]
    bad = [column for column in columns.values() if column.shows.startswith(("attack/", "measured_corruption"))]
    pairs = [(columns["clean"], column) for column in bad] if "clean" in columns else []
    pairs += [(columns[name], columns[f"{name}_c"]) for name in columns if f"{name}_c" in columns]
    return pairs if len(compared) > 1 else []


def trade_off_figure(results: Results) -> "Figure":
    """Draw the differences from the first row, clean on x and robust on y, with both 95 % intervals."""
    pairs, (first, *others) = trade_off_columns(results), results
    figure, axes = _panels(len(pairs), rows=7, share_rows=False)
    numbers = {row: number for number, row in enumerate(results)}
    for axis, (clean, bad) in zip(axes, pairs, strict=True):
        for row in others:
            if shared_seeds(results[row], results[first]):
                x, y = (difference(column, results, row, first) for column in (clean, bad))
                shade, shape = colour(numbers[row]), marker(numbers[row])
                axis.plot([x.low, x.high], [y.value, y.value], color=shade, linewidth=1, alpha=0.45)
                axis.plot([x.value, x.value], [y.low, y.high], color=shade, linewidth=1, alpha=0.45)
                axis.plot([x.value], [y.value], shape, color=shade, markersize=6, label=row)
        axis.axhline(0, color="black", linewidth=0.8)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_title(bad.title, fontsize=9)
        axis.set_xlabel(clean.title, fontsize=7)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3)
    legend_above(figure, axes[0])
    note(figure, f"every row minus {first}, with 95 % intervals")
    return figure


def counted_seeds(count: int) -> str:
    """Format a number of seeds; fewer than three are spelt out as a caution."""
    return {0: "no shared seed", 1: "one seed", 2: "two seeds"}.get(count, f"{count} seeds")


def traced_names(results: Results) -> list[str]:
    """Values logged by at least one training, in the order of the log."""
    return list(dict.fromkeys(name for runs in results.values() for run in runs for name in run.traces))


def training_figure(results: Results) -> "Figure":
    """Draw one panel per logged value and one line per row, the mean over its seeds."""
    names = traced_names(results)
    figure, axes = _panels(len(names), rows=6, share_rows=False)
    numbers = {row: number for number, row in enumerate(results)}
    for axis, name in zip(axes, names, strict=True):
        for row, runs in results.items():
            curves = [run.traces[name] for run in runs if name in run.traces]
            if curves and len({len(curve) for curve in curves}) == 1:
                mean = np.mean(curves, axis=0)
                axis.plot(mean[:, 0], mean[:, 1], linewidth=1.3, **line_look(numbers[row], len(mean)))
        axis.set_title(name.replace("_", " "), fontsize=9)
        axis.set_xlabel("step", fontsize=7)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3)
    for row, number in numbers.items():
        axes[0].plot([], [], label=row, **line_look(number, 1))
    legend_above(figure, axes[0])
    return figure
