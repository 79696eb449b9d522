"""The two pictures of a model card: how the score falls with severity, and every kind of corruption."""

from math import isnan
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from holdfast import atomic
from holdfast.figure_parts import colour
from holdfast.metrics.summary import Score
from holdfast.reporting.entries import DataSet
from holdfast.reporting.figures import charts
from holdfast.reporting.figures.of_data import severity_line
from holdfast.reporting.text import kind_label


def card_figures(data: DataSet, folder: Path) -> dict[str, str]:
    """Write the figures as PNG; their files with what they show. Without corrupted images there are none."""
    entry = data.baseline
    found: dict[str, str] = {}
    line = severity_line(entry)
    if line is not None:
        caption = "Mean accuracy over 15 kinds of corruption by severity; the band is a 95 % interval."
        found[_written(charts.severity_curves([line]), folder / "robustness-by-severity.png")] = caption
    kinds = [score for score in entry.summary if score.family == "corruption" and score.table and not score.partial]
    kinds = [score for score in kinds if score.table == kinds[0].table and not isnan(score.value)]
    if kinds:
        caption = "Every kind of corruption, mean over five severities, with 95 % intervals."
        found[_written(_by_kind(kinds), folder / "robustness-by-kind.png")] = caption
    return found


def _by_kind(scores: list[Score]) -> Figure:
    figure = Figure(figsize=(5.2, 0.8 + 0.24 * len(scores)), layout="constrained")
    axes = figure.subplots()
    for place, score in enumerate(scores):
        axes.plot([score.low, score.high], [place, place], color=colour(0), linewidth=1.6)
        axes.plot(score.value, place, marker="o", markersize=5, color=colour(0))
    axes.set_yticks(range(len(scores)), [kind_label(score.kind) for score in scores])
    axes.set_ylim(len(scores) - 0.4, -0.6)
    axes.set_xlabel(f"{scores[0].table}, {scores[0].unit}")
    axes.grid(visible=True, axis="x", alpha=0.3)
    return figure


def _written(figure: Figure, path: Path) -> str:
    with matplotlib.rc_context({"text.parse_math": False}), atomic.replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150, facecolor="white")
    return path.name
