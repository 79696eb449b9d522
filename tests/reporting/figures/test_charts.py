"""Charts of the report: functions from numbers to matplotlib figures. Scores are in percent."""

from holdfast.plotting.svg import draw_svg
from holdfast.reporting.figures import charts
from holdfast.reporting.figures.charts import ChartLine


def test_long_curves_say_some_of_their_values_only():
    lines = [ChartLine(str(n), n, list(range(1000)), list(range(1000))) for n in range(4)]
    svg = draw_svg(lambda: charts.curves(lines, x="x", y="y"), name="x", description="")
    assert 1000 < svg.count('class="value"') <= 1500
