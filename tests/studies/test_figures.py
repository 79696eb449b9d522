"""Plots of a study: scores of all runs, differences with intervals, accuracy–robustness trade-off, training logs."""

from dataclasses import replace

import numpy as np

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
