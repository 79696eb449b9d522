"""Effective robustness against a fit by hand, and its interval over other images."""

from dataclasses import replace

import matplotlib
import numpy as np
import pytest

from holdfast.plotting.svg import STYLE
from holdfast.records.records import Passes
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


def test_the_smallest_test_of_the_facts():
    """Four models on the line, and one of 78 % with 70 % under shift: 3.397 points above 66.603."""
    clean = np.array([[60.0], [70.0], [76.0], [80.0], [78.0]])
    shifted = np.array([[47.0], [58.0], [64.0], [69.0], [70.0]])
    assert effective_robustness(clean, shifted)[4, 0] == pytest.approx(3.3969989675, abs=1e-9)


def test_a_model_without_a_logit_is_on_no_line():
    clean = np.array([[60.0], [70.0], [76.0], [80.0], [78.0], [90.0], [100.0]])
    shifted = np.array([[47.0], [58.0], [64.0], [69.0], [70.0], [0.0], [97.0]])
    assert effective_robustness(clean, shifted)[4, 0] == pytest.approx(3.3969989675, abs=1e-9)


NAMES = [*(f"m{n}" for n in range(7)), "m7" + "_long" * 12]


def runs_of(folder, *, count, more={}):  # noqa: B006 (further cells of some models)
    cells, options = ("clean", *(f"fog/{severity}" for severity in range(1, 6))), {"count": count, "data": f"d{count}"}
    return [
        make_run(folder / name, hold=0.1 + 0.1 * n, cells=(*cells, *more.get(n, ())), trained=False, **options)
        for n, name in enumerate(NAMES)
    ]


def test_eight_models_have_the_plot_and_seven_do_not(tmp_path):
    runs = runs_of(tmp_path, count=250)
    (data,) = data_sets(read_runs(runs))
    points = shift_points(data)
    assert [point.entry.name for point in points] == NAMES
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


def test_eight_models_of_which_some_are_always_right_have_no_plot(tmp_path):
    (data,) = data_sets(read_runs(runs_of(tmp_path, count=40)))
    assert {100.0} < {entry.summary["clean"].value for entry in data.models}
    assert shift_points(data) == []


def test_models_are_compared_on_the_cells_that_all_have_if_evaluations_stopped_early(tmp_path):
    runs = runs_of(tmp_path, count=250, more={0: ("contrast/1",), 7: ("snow/2",)})
    (data,) = data_sets(read_runs(runs))
    stopped = [replace(each, records=replace(each.records, passes=Passes(1, 2))) for each in data.entries]
    points, plain = shift_points(replace(data, entries=stopped)), shift_points(data)
    assert [point.effective for point in points] == [point.effective for point in plain]
    assert len(points) == 8
