"""Figures inside the page: text stays text, ids stay apart, colours are the page's."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.figure import Figure

from holdfast.metrics.intervals import Interval
from holdfast.plotting.style import picture
from holdfast.plotting.svg import draw_svg, page_colour
from holdfast.reporting.figures import charts
from holdfast.reporting.figures.charts import ChartLine, Point, Track
from holdfast.reporting.figures.forest import ForestModel, ForestRow, forest

HOSTILE = '</text></svg><script>alert("x")</script> & $\\frac{1}{0}$ \x07 id="a" url(#b)'
SHORTENED = dict.fromkeys(("severity", "cost"), '</text></svg><s… id="a" url(#b)')  # names in legends
BETWEEN = Interval(1.0, 0.5, 1.5, 0.95)
FIGURES = {
    "severity": lambda: charts.severity_curves([ChartLine(HOSTILE, 0, [0, 1], [90, 80], [85, 75], [95, 85])]),
    "forest": lambda: forest(
        [ForestRow(HOSTILE, {}), ForestRow("zero", {HOSTILE: BETWEEN, "b": Interval(0, -1, 1, 0.95)})],
        [ForestModel(HOSTILE, 0), ForestModel("b", 9)],
        baseline=HOSTILE,
    ),
    "cost": lambda: charts.cost_scatter([Point(HOSTILE, 0, 1.0, BETWEEN), Point("b", 1, 1.0, BETWEEN)], cost="GMACs"),
    "trade-off": lambda: charts.trade_off([Track("t", 0, [(HOSTILE, 90, 10), ("b", 80, 20)])], attack=HOSTILE),
    "curves": lambda: charts.curves([ChartLine(HOSTILE, 6, [0, 1, 2], [1.0, 2.0, 3.0])], x=HOSTILE, y="y"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_takes_hostile_names_as_text(name):
    svg = draw_svg(FIGURES[name], name="figure-1", description=HOSTILE)
    root = ET.fromstring(str(svg))  # one well-formed element
    known = ["svg", "g", "path", "text", "use", "defs", "clipPath", "rect", "tspan", "circle", "title"]
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= set(known)
    text = " ".join(element.text or "" for element in root.iter() if element.tag.endswith("text"))
    whole = '<script>alert("x")</script> & $\\frac{1}{0}$'
    assert (SHORTENED.get(name) or whole) in text
    assert name == "trade-off" or any(whole in element.get("data-label", "") for element in root.iter())
    assert "\x07" not in svg
    assert "<script>" in root.attrib["aria-label"]


def test_ids_of_two_figures_never_meet():
    one, two = (draw_svg(FIGURES["severity"], name=name, description="") for name in ("one", "two"))
    ids = [
        {element.attrib["id"] for element in ET.fromstring(str(svg)).iter() if "id" in element.attrib}
        for svg in (one, two)
    ]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert "url(#p" not in one


def test_ink_is_the_pages_and_black_too():
    svg = draw_svg(FIGURES["curves"], name="x", description="")
    assert "var(--ink)" in svg
    assert "var(--muted)" in svg
    assert "#000000" not in svg  # the seventh run's colour, invisible on a dark page
    assert page_colour(6) == "var(--ink)"
    assert page_colour(0).startswith("#")


def test_the_same_figure_is_the_same_text():
    assert draw_svg(FIGURES["forest"], name="x", description="") == draw_svg(
        FIGURES["forest"], name="x", description=""
    )


def test_pictures_are_images_with_the_pages_ink_around_them():
    rng = np.random.default_rng(0)

    def draw(side: int) -> Figure:
        figure = Figure(figsize=(2, 2))
        picture(figure.subplots(), rng.integers(0, 256, (side, side, 3), dtype=np.uint8), title="what is shown")
        return figure

    for side, kind in ((8, "png"), (400, "jpeg")):
        svg = draw_svg(lambda side=side: draw(side), name="x", description="")
        assert f'href="data:image/{kind};base64,' in svg
        assert "what is shown" in svg
        assert "fill: var(--ink)" in svg
        assert len(svg) < 200_000


def test_points_say_their_values_without_scripts():
    root = ET.fromstring(str(draw_svg(FIGURES["severity"], name="x", description="")))
    dots = [element for element in root.iter() if element.get("class") == "value"]
    assert [dot[0].text.split("\n")[1:] for dot in dots] == [
        ["clean: 90.0 %", "85.0 to 95.0"],
        ["severity 1: 80.0 %", "75.0 to 85.0"],
    ]
    assert dots[0].get("data-label") == dots[1].get("data-label") != ""
    at = [(float(dot.get("cx")), float(dot.get("cy"))) for dot in dots]
    assert at[0][0] < at[1][0]  # severity 1 lies to the right of clean,
    assert at[0][1] < at[1][1]  # and lower


def test_points_lie_where_they_are_drawn():
    root = ET.fromstring(str(draw_svg(FIGURES["curves"], name="x", description="")))
    dots = [(float(e.get("cx")), float(e.get("cy"))) for e in root.iter() if e.get("class") == "value"]
    (path,) = [
        element
        for group in root.iter()
        if group.get("data-label") and group.tag.endswith("g")
        for element in group
        if element.tag.endswith("path") and element.get("d", "").count("L") == 2
    ][:1]
    numbers = [float(word) for word in path.get("d").split() if word not in "ML"]
    assert np.allclose(np.ravel(dots), numbers, atol=0.06)


def test_places_are_rounded_and_groups_without_a_purpose_are_left_out():
    root = ET.fromstring(str(draw_svg(FIGURES["curves"], name="x", description="")))
    numbers = [word for each in root.iter() for word in each.get("d", "").split() if word[-1].isdigit()]
    assert any(word.startswith("-") for word in numbers)  # of markers around their middle
    assert max(len(word.partition(".")[2]) for word in numbers) <= 2
    groups = [each for each in root.iter() if each.tag.endswith("}g")]
    assert all(each.attrib and len(each) for each in groups)
    used = {each.get("{http://www.w3.org/1999/xlink}href", "#")[1:] for each in root.iter()}
    markers = {each.attrib["id"] for each in root.iter() if each.tag.endswith("}path") and "id" in each.attrib}
    assert markers
    assert markers <= used


def test_names_beside_lines_are_in_order_and_do_not_overlap():
    assert charts.spread([50, 0, 51], gap=10) == pytest.approx([45.5, 0, 55.5])
    assert charts.spread([3, 3, 3], gap=4) == pytest.approx([-1, 3, 7])
    lines = [ChartLine(name, n, [0, 5], [90, 60 + n]) for n, name in enumerate(("a", "b", "c"))]
    axes = charts.severity_curves(lines).axes[0]
    heights = {text.get_text(): text.xyann[1] for text in axes.texts}
    assert set(heights) == {"a", "b", "c"}
    assert heights["a"] < heights["b"] < heights["c"]
    svg = draw_svg(lambda: charts.severity_curves(lines), name="x", description="")
    named = [each for each in ET.fromstring(str(svg)).iter() if each.get("data-label") == "b"]
    assert any(child.tag.endswith("}text") for each in named for child in each.iter())  # hidden with its model
    long = [ChartLine("a name of more letters than fit", 0, [0, 5], [90, 60])]
    assert not charts.severity_curves(long).axes[0].texts
