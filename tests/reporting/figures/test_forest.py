"""Forest plots: rows in one panel or two, and every name inside the picture, however long."""

import matplotlib
import pytest

from holdfast.metrics.intervals import Interval
from holdfast.plotting.svg import STYLE, draw_svg
from holdfast.reporting.figures.forest import ForestModel, ForestRow, forest, panels

LONG = "resnet50_augmix_deepaugment_a_very_long_name_of_a_checkpoint"


def rows_of(models, *, groups=4, kinds=4):
    found = []
    for group in range(groups):
        found.append(ForestRow(f"group {group}", {}))
        differences = {each.label: Interval(each.number, each.number - 1, each.number + 1, 0.95) for each in models}
        found += [ForestRow(f"kind {group} {kind}", differences) for kind in range(kinds)]
    return found


def test_a_tall_plot_has_two_panels_that_begin_with_a_heading():
    few, many = ([ForestModel(f"m{n}", n) for n in range(count)] for count in (2, 7))
    assert panels(rows_of(few), few) == [rows_of(few)]
    first, second = panels(rows_of(many), many)
    assert [*first, *second] == rows_of(many)
    assert second[0].is_heading
    assert abs(len(first) - len(second)) <= 1
    with matplotlib.rc_context(STYLE):
        one, other = forest(rows_of(many), many, baseline="b").axes
    assert one.get_xlim() == other.get_xlim()
    assert one.get_ylim() == other.get_ylim()


@pytest.mark.parametrize("count", [3, 7])
def test_names_are_inside_the_picture_and_hide_with_their_model(count):
    models = [ForestModel(f"{LONG}_{n}" if n % 2 else f"model {n}", n) for n in range(count)]
    with matplotlib.rc_context(STYLE):
        figure = forest(rows_of(models), models, baseline=LONG)
        figure.draw_without_rendering()
        (names,) = figure.legends
        assert len(names.get_texts()) == count
        assert names.get_window_extent().x0 >= 0
        assert names.get_window_extent().x1 <= figure.bbox.x1
    svg = draw_svg(lambda: forest(rows_of(models), models, baseline=LONG), name="x", description="")
    for model in models:
        assert svg.count(f'data-label="{model.label}"') > 2  # marker, intervals, and the name and marker of the legend
