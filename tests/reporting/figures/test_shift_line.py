"""Effective robustness against a fit by hand, and its interval over other images."""

import matplotlib
import numpy as np
import pytest

from holdfast.plotting.svg import STYLE
from holdfast.reporting.comparable import data_sets
from holdfast.reporting.figures.shift_line import effective_robustness, from_logit, logit, shift_line, shift_points
from holdfast.reporting.runs import read_runs
from tests.reporting.helpers import make_run


def test_effective_robustness_is_the_height_above_the_line_of_the_others():
    clean = np.array([[60.0], [70.0], [80.0], [90.0]])
    on_line = from_logit(0.5 * logit(clean) - 1)
    above = on_line.copy()
    above[2] += 7
    gaps = effective_robustness(clean, above)
    assert gaps[2, 0] == pytest.approx(7)
    slope, height = np.polyfit(logit(clean)[[0, 1, 2], 0], logit(above)[[0, 1, 2], 0], 1)
    assert gaps[3, 0] == pytest.approx(above[3, 0] - from_logit(np.array(height + slope * logit(clean)[3, 0])))
    assert effective_robustness(clean, on_line) == pytest.approx(0, abs=1e-9)


def test_eight_models_have_the_plot_and_seven_do_not(tmp_path):
    cells = ("clean", *(f"fog/{severity}" for severity in range(1, 6)))
    names = [*(f"m{n}" for n in range(7)), "m7" + "_long" * 12]
    runs = [make_run(tmp_path / name, hold=0.1 + 0.1 * n, cells=cells, trained=False) for n, name in enumerate(names)]
    (data,) = data_sets(read_runs(runs))
    points = shift_points(data)
    assert [point.entry.name for point in points] == names
    assert all(point.effective.low < point.effective.value < point.effective.high for point in points)
    (fewer,) = data_sets(read_runs(runs[:7]))
    assert shift_points(fewer) == []
    with matplotlib.rc_context(STYLE):
        figure = shift_line(points, shifted="mCA")
        figure.draw_without_rendering()
    (axes,) = figure.axes
    assert axes.get_window_extent().width > 0.7 * figure.bbox.width  # a long name takes nothing from the axes
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 8
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for box in boxes)
