"""Plots of a study: scores of all runs, differences with intervals, accuracy–robustness trade-off, training logs."""

from dataclasses import replace

import numpy as np

from holdfast.plotting.style import COLOURS, MARKERS
from holdfast.studies.figures import differences_figure, traced_names, training_figure
from tests.studies.test_results import result


def test_the_plot_of_differences_says_how_many_seeds_a_row_shares_with_the_first():
    runs = {"plain": [result("plain", seed) for seed in (0, 1)], "A": [result("A", 1)], "B": [result("B", 2)]}
    labels = [label.get_text() for label in differences_figure(runs).axes[0].get_yticklabels()]
    assert labels == ["A (one seed)", "B (no shared seed)"]


def test_a_line_of_the_training_plot_is_the_mean_over_the_seeds():
    runs = [replace(result(seed=seed), traces={"adl": np.array([[1, seed], [2, 4.0]])}) for seed in (0, 1)]
    (axis,) = [axis for axis in training_figure({"ADL": runs}).axes if axis.get_visible()]
    assert axis.lines[0].get_xydata().tolist() == [[1, 0.5], [2, 4]]
    assert traced_names({"ADL": runs}) == ["adl"]


def test_rows_have_the_colours_and_markers_of_the_report():
    trace = {"adl": np.array([[1, 0.0], [2, 4.0]])}
    rows = {name: [replace(result(name, 0), traces=trace)] for name in ("plain", "A", "B")}
    (axis,) = [axis for axis in training_figure(rows).axes if axis.get_visible()]
    looks = [(line.get_color(), line.get_marker()) for line in axis.lines if len(line.get_xdata())]
    assert looks == list(zip(COLOURS[:3], MARKERS[:3], strict=True))
