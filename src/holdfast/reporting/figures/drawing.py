"""From a matplotlib figure to SVG that lives inside an HTML page: its colours follow the page, its text is text.

Pictures and maps are images inside the SVG, so that what is written around them is light on dark pages, too.
"""

import base64
import io
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image

from holdfast.figure_files import alternative_text
from holdfast.figure_parts import colour
from holdfast.reporting.figures.values import Value, named_artists, values_of
from holdfast.reporting.text import printable

LARGEST = 1.75  # CSS pixels per point of the figure: a little more than life size
SMALL_IMAGE, LARGEST_IMAGE = 16_000, 320  # bytes of an image that stays as it is; pixels of what is made smaller
SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"

# drawn with stand-ins that nobody else uses, then replaced by the page's own colours, so that dark pages get light ink
INK, MUTED, LINE = "#010203", "#040506", "#070809"
NOTE = "#595959"  # figures' small print
_PAGE_COLOURS = {
    "#000000": "var(--ink)",
    NOTE: "var(--muted)",
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
}

STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "holdfast",
    "image.composite_image": False,  # a map over a picture stays a map over a picture
    "text.parse_math": False,  # a name with dollars is a name
    "text.usetex": False,
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.8,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.8,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
}


def page_colour(number: int) -> str:
    """The colour of the run with this number, as a page writes it."""
    return _PAGE_COLOURS.get(colour(number), colour(number))


def drawn(draw: Callable[[], Figure], *, name: str, description: str) -> Markup:
    """Draw in the page's style and return the SVG.

    Args:
        draw: makes the figure; called with the page's style in force.
        name: prefix of all ids inside the SVG, different for every figure of the page.
        description: what a reader who cannot see it is told, before what the figure itself shows.
    """
    with matplotlib.rc_context(STYLE):
        figure = draw()
        told = " ".join(part for part in (description, alternative_text(figure)) if part)
        return inline_svg(figure, name=name, description=told)


def inline_svg(figure: Figure, *, name: str, description: str) -> Markup:
    """The figure as an ``<svg>`` element that scales with its box."""
    buffer, labels = io.BytesIO(), named_artists(figure)
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the reader's browser has the glyph
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    root = ET.fromstring(printable(buffer.getvalue().decode("utf-8")))
    for element in list(root):
        if element.tag in (f"{{{SVG}}}metadata", f"{{{SVG}}}defs"):  # the latter styles the whole page
            root.remove(element)
    for element in root.iter():
        if element.get("id") in labels:  # several artists may carry one label
            element.set("data-label", printable(labels[element.attrib.pop("id")]))
        element.attrib.update({key: _attribute(key, value, name) for key, value in element.attrib.items()})
    root.extend(_dot(value) for value in values_of(figure))
    width = float(root.attrib.pop("width").removesuffix("pt"))
    del root.attrib["height"]  # the view box keeps the proportions
    root.attrib.update(
        {"role": "img", "aria-label": printable(description), "style": f"max-width: {LARGEST * width:.0f}px"}
    )
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    return Markup(ET.tostring(root, encoding="unicode"))  # serialised, so all text in it is escaped


def _dot(value: Value) -> ET.Element:
    """An invisible dot that says its value when it is pointed at, also without scripts."""
    place = {"class": "value", "cx": f"{value.x:.1f}", "cy": f"{value.y:.1f}", "r": "4"}
    dot = ET.Element(f"{{{SVG}}}circle", place | ({"data-label": printable(value.label)} if value.label else {}))
    ET.SubElement(dot, f"{{{SVG}}}title").text = printable(value.text)
    return dot


def _embedded(address: str) -> str:
    """An image inside the SVG: as it is, or as a JPEG where that is smaller and nothing shines through."""
    head, _, text = "".join(address.split()).partition(",")
    pixels = base64.b64decode(text)
    if len(pixels) > SMALL_IMAGE:
        picture = Image.open(io.BytesIO(pixels)).convert("RGBA")
        if picture.getchannel("A").getextrema() == (255, 255):
            picture.thumbnail((LARGEST_IMAGE, LARGEST_IMAGE))
            buffer = io.BytesIO()
            picture.convert("RGB").save(buffer, format="JPEG", quality=85)
            if len(buffer.getvalue()) < len(pixels):
                return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
    return f"{head},{text}"


def _attribute(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key == f"{{{XLINK}}}href":
        if value.startswith("data:"):
            return _embedded(value)
        return value.replace("#", f"#{name}-", 1)
    value = re.sub(r"url\(#", f"url(#{name}-", value)
    if key == "style":
        for stand_in, variable in _PAGE_COLOURS.items():
            value = value.replace(stand_in, variable)
        value = re.sub(r"font-family: [^;]*", "font-family: inherit", value)
    return value
