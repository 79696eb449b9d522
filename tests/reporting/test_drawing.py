"""Figures inside the page: text stays text, ids stay apart, colours are the page's."""

import xml.etree.ElementTree as ET

import pytest
from matplotlib.figure import Figure

from holdfast.metrics.intervals import Interval
from holdfast.reporting.figures import charts
from holdfast.reporting.figures.charts import Line, Point, Track
from holdfast.reporting.figures.drawing import drawn, drawn_png, page_colour
from holdfast.reporting.text import clean_name, distinct, number, signed

HOSTILE = '</text></svg><script>alert("x")</script> & $\\frac{1}{0}$ \x07 id="a" url(#b)'
BETWEEN = Interval(1.0, 0.5, 1.5, 0.95)
FIGURES = {
    "severity": lambda: charts.severity_curves([Line(HOSTILE, 0, [0, 1], [90, 80], [85, 75], [95, 85])]),
    "forest": lambda: charts.forest([(HOSTILE, BETWEEN), ("zero", Interval(0, -1, 1, 0.95))]),
    "cost": lambda: charts.cost_scatter([Point(HOSTILE, 0, 1.0, BETWEEN), Point("b", 1, 1.0, BETWEEN)], cost="GMACs"),
    "trade-off": lambda: charts.trade_off([Track("t", 0, [(HOSTILE, 90, 10), ("b", 80, 20)])], attack=HOSTILE),
    "curves": lambda: charts.curves([Line(HOSTILE, 6, [0, 1, 2], [1.0, 2.0, 3.0])], x=HOSTILE, y="y"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_takes_hostile_names_as_text(name):
    svg = drawn(FIGURES[name], name="figure-1", description=HOSTILE)
    root = ET.fromstring(str(svg))  # one well-formed element
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {"svg", "g", "path", "text", "use", "defs",
                                                                           "clipPath", "rect", "tspan"}  # fmt: skip
    text = " ".join(element.text or "" for element in root.iter() if element.tag.endswith("text"))
    assert '<script>alert("x")</script> & $\\frac{1}{0}$' in text
    assert "\x07" not in svg
    assert "<script>" in root.attrib["aria-label"]


def test_ids_of_two_figures_never_meet():
    one, two = (drawn(FIGURES["severity"], name=name, description="") for name in ("one", "two"))
    ids = [
        {element.attrib["id"] for element in ET.fromstring(str(svg)).iter() if "id" in element.attrib}
        for svg in (one, two)
    ]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert "url(#p" not in one


def test_ink_is_the_pages_and_black_too():
    svg = drawn(FIGURES["curves"], name="x", description="")
    assert "var(--ink)" in svg
    assert "var(--muted)" in svg
    assert "#000000" not in svg  # the seventh run's colour, invisible on a dark page
    assert page_colour(6) == "var(--ink)"
    assert page_colour(0).startswith("#")


def test_the_same_figure_is_the_same_text():
    assert drawn(FIGURES["forest"], name="x", description="") == drawn(FIGURES["forest"], name="x", description="")


def test_pictures_are_data_addresses():
    def draw() -> Figure:
        figure = Figure(figsize=(1, 1))
        figure.subplots().imshow([[0, 1]])
        return figure

    assert drawn_png(draw).startswith("data:image/png;base64,iVBOR")


def test_names_become_one_printable_line():
    assert clean_name("a\n b\t\x00c\ud800") == "a b \N{REPLACEMENT CHARACTER}c\N{REPLACEMENT CHARACTER}"
    assert len(clean_name("x" * 500)) == 80
    assert distinct(["a", "a", "a (2)", "b"]) == ["a", "a (2)", "a (2) (2)", "b"]


def test_numbers_are_written_as_people_read_them():
    assert [number(value) for value in (1.25, -0.04, -3.0, float("nan"))] == ["1.2", "0.0", "−3.0", "–"]
    assert [signed(value) for value in (1.0, 0.04, -2.0)] == ["+1.0", "0.0", "−2.0"]
