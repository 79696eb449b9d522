"""Charts of the report: functions from numbers to matplotlib figures. Scores are in percent."""

import matplotlib
import pytest

from holdfast.plotting.svg import STYLE, draw_svg
from holdfast.reporting.figures import charts
from holdfast.reporting.figures.charts import ChartLine


def test_long_curves_say_some_of_their_values_only():
    lines = [ChartLine(str(n), n, list(range(1000)), list(range(1000))) for n in range(4)]
    svg = draw_svg(lambda: charts.curves(lines, x="x", y="y"), name="x", description="")
    assert 1000 < svg.count('class="value"') <= 1500


@pytest.mark.parametrize("length", [3, 19, 70])
def test_curves_keep_their_height_below_the_names_of_twelve_models(length):
    heights = []
    for count in (1, 12):
        lines = [ChartLine(f"{n:02}" + "n" * (length - 2), n, [0, 1], [n, n]) for n in range(count)]
        with matplotlib.rc_context(STYLE):
            figure = charts.curves(lines, x="x", y="y")
            figure.draw_without_rendering()
        heights.append(figure.axes[0].get_window_extent().height)
        for legend in figure.legends:
            assert legend.get_window_extent().x1 <= figure.bbox.x1
    assert heights[1] > 0.85 * heights[0]


def test_both_ends_of_a_long_name_are_shown():
    assert charts.short_name("resnet50") == "resnet50"
    short = charts.short_name("first" + "x" * 60 + "last")
    assert (len(short), short[:5], short[-4:]) == (31, "first", "last")
