"""Inline SVG of matplotlib figures with tooltips, for HTML pages."""

import base64
import io
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any
from weakref import WeakKeyDictionary

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FuncFormatter
from PIL import Image

from holdfast.plotting.files import alternative_text, printable
from holdfast.plotting.style import colour

MOST = 1500  # tooltips per figure; longer curves are subsampled
POINTS = 72  # per inch, matplotlib's unit in SVG
_TOOLTIPS: WeakKeyDictionary[Line2D, Sequence[str]] = WeakKeyDictionary()


@dataclass(frozen=True)
class TooltipValue:
    """A tooltip: position in points from the upper left corner, label of its curve, and text."""

    x: float
    y: float
    label: str
    text: str


def set_tooltips(line: Line2D, texts: Sequence[str]) -> None:
    """Set one tooltip per point of a line, instead of the default of label and coordinates."""
    _TOOLTIPS[line] = tuple(texts)


def named_artists(figure: Figure) -> dict[str, str]:
    """Give labelled artists ids in the SVG, so that a page can hide a model; returns labels by id."""
    ids: dict[str, str] = {}
    for artist, label in _labelled_artists(figure):
        ids.setdefault(label, f"label{len(ids)}")
        artist.set_gid(ids[label])
    return {id: label for label, id in ids.items()}


def values_of(figure: Figure) -> list[TooltipValue]:
    """Tooltips of all curves and markers of a drawn figure."""
    lines = [(axes, line) for axes in figure.axes for line in axes.lines if _says_something(line)]
    total = sum(len(np.atleast_1d(line.get_xdata())) for _, line in lines)
    step = max(1, -(-total // MOST))
    return [value for axes, line in lines for value in _points(figure, axes, line, step)]


def _labelled_artists(figure: Figure) -> Iterator[tuple[Artist, str]]:
    for axes in figure.axes:
        for artist in (*axes.lines, *axes.collections, *axes.texts):
            if label := _label(artist):
                yield artist, label
        legends: list[Any] = [axes.get_legend()] if axes.get_legend() is not None else []
        for legend in (*legends, *figure.legends):
            for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=False):
                for artist in (text, handle):
                    yield artist, _label(text) or text.get_text()


def _label(artist: Artist) -> str:
    """Label in the legend; artists that belong to another one carry an underscore and its label."""
    label = str(artist.get_label() or "")
    return "" if label.startswith("_child") else label.removeprefix("_")


def _says_something(line: Line2D) -> bool:
    return not str(line.get_label()).startswith("_") or line.get_marker() not in ("None", "none", "", None)


def _points(figure: Figure, axes: Axes, line: Line2D, step: int) -> Iterator[TooltipValue]:
    if line.get_transform() != axes.transData:  # axhline and axvline span the axes and have no data values
        return
    xs, ys = (np.atleast_1d(np.asarray(data, dtype=float))[::step] for data in (line.get_xdata(), line.get_ydata()))
    places = axes.transData.transform(np.stack([xs, ys], axis=1)) * POINTS / figure.dpi
    height = figure.get_figheight() * POINTS
    texts = _TOOLTIPS.get(line, ())[::step] or [_text(axes, line, x, y) for x, y in zip(xs, ys, strict=True)]
    for text, (right, up) in zip(texts, places, strict=True):
        if isfinite(right) and isfinite(up):
            yield TooltipValue(float(right), float(height - up), _label(line), text)


def _text(axes: Axes, line: Line2D, x: float, y: float) -> str:
    return "\n".join(filter(None, [_label(line), _axis_text(axes.xaxis, x), _axis_text(axes.yaxis, y)]))


def _axis_text(axis: Axis, value: float) -> str:
    """Format a coordinate: ``severity: 3``, ``accuracy, %: 71.2``, or the name of the tick."""
    label, tick = axis.get_label_text(), _tick(axis, value)
    return f"{label}: {tick}" if label else tick


def _tick(axis: Axis, value: float) -> str:
    if isinstance(axis.get_major_formatter(), FixedFormatter | FuncFormatter):
        places = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=False)
        named = [text.get_text() for place, text in places if abs(place - value) < 1e-9]
        if named and named[0]:
            return named[0]
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


LARGEST = 1.4  # CSS pixels per point of the figure, so that text has one size where there is room
SMALL_IMAGE, LARGEST_IMAGE = 5_000, 320  # bytes of an image that stays a PNG; pixels of a larger one after shrinking
SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"

NUMBERS = {"d", "x", "y", "points", "transform", "width", "height"}  # attributes of coordinates
DECIMALS = re.compile(r"-?\d+(?:\.\d+)?")

# placeholder colours, replaced by the page's CSS variables, so that dark pages get light ink
INK, MUTED, LINE, CARD = "#010203", "#040506", "#070809", "#0a0b0c"
NOTE = "#595959"  # colour of notes below figures
_PAGE_COLOURS = {
    "#000000": "var(--ink)",
    NOTE: "var(--muted)",
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    CARD: "var(--card)",
}

STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "holdfast",
    "image.composite_image": False,  # keep overlays as separate images
    "text.parse_math": False,  # dollar signs in names are not TeX
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
    """CSS colour of the run with this number."""
    return _PAGE_COLOURS.get(colour(number), colour(number))


def draw_svg(draw: Callable[[], Figure], *, name: str, description: str) -> Markup:
    """Draw in the page's style and return the SVG.

    Args:
        draw: creates the figure; called within the page's style.
        name: prefix of all ids in the SVG, unique on the page.
        description: alternative text before the description of the figure itself.
    """
    with matplotlib.rc_context(STYLE):
        figure = draw()
        text = " ".join(part for part in (description, alternative_text(figure)) if part)
        return inline_svg(figure, name=name, description=text)


def inline_svg(figure: Figure, *, name: str, description: str) -> Markup:
    """Convert a figure to an ``<svg>`` element that scales with its container."""
    buffer, labels = io.BytesIO(), named_artists(figure)
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # text stays text, so the browser's fonts draw the glyph
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    root = ET.fromstring(printable(buffer.getvalue().decode("utf-8")))
    for element in list(root):
        if element.tag in (
            f"{{{SVG}}}metadata",
            f"{{{SVG}}}defs",
        ):  # <defs> holds a <style> that would apply to the whole page
            root.remove(element)
    for element in root.iter():
        if element.get("id") in labels:  # several artists may share a label, but ids must be unique
            element.set("data-label", printable(labels[element.attrib.pop("id")]))
        element.attrib.update({key: _attribute(key, value, name) for key, value in element.attrib.items()})
    _compact(root)
    root.extend(_dot(value) for value in values_of(figure))
    width = float(root.attrib.pop("width").removesuffix("pt"))
    del root.attrib["height"]  # the view box keeps the aspect ratio
    root.attrib.update(
        {"role": "img", "aria-label": printable(description), "style": f"max-width: {LARGEST * width:.0f}px"}
    )
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    return Markup(ET.tostring(root, encoding="unicode"))  # serialised, so all text in it is escaped


def _compact(root: ET.Element) -> None:
    """Round to hundredths of a point and drop what nobody sees or refers to, about half of matplotlib's text."""
    used = set(re.findall(r"#([^\s)]+)", " ".join(value for each in root.iter() for value in each.attrib.values())))
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)
        for key in NUMBERS & element.attrib.keys():
            element.set(key, DECIMALS.sub(_hundredths, " ".join(element.attrib[key].split())))
        if element.get("transform", "").startswith("rotate(0 "):
            del element.attrib["transform"]
    _prune(root)


def _hundredths(number: re.Match[str]) -> str:
    return f"{round(float(number[0]), 2) + 0.0:g}"


def _prune(element: ET.Element) -> None:
    """Remove empty groups, groups that say nothing of their children, and invisible paths."""
    kept: list[ET.Element] = []
    for child in element:
        _prune(child)
        if child.tag == f"{{{SVG}}}g" and not child.attrib:
            kept.extend(child)
        elif not (child.tag == f"{{{SVG}}}path" and child.get("style") == "fill: none" and "id" not in child.attrib):
            kept.append(child)
    if kept:
        element[:] = kept
        if element.tag.rpartition("}")[2] in ("svg", "g", "defs"):
            element.text = None
            for child in kept:
                child.tail = None
    elif element.tag == f"{{{SVG}}}g":
        element[:] = []
        element.text = None


def _dot(value: TooltipValue) -> ET.Element:
    """An invisible dot with a ``<title>``, which browsers show as a tooltip without scripts."""
    place = {"class": "value", "cx": f"{value.x:.1f}", "cy": f"{value.y:.1f}", "r": "4"}
    dot = ET.Element(f"{{{SVG}}}circle", place | ({"data-label": printable(value.label)} if value.label else {}))
    ET.SubElement(dot, f"{{{SVG}}}title").text = printable(value.text)
    return dot


def _embed_image(address: str) -> str:
    """Embed an image unchanged, or as JPEG if that is smaller and the image is opaque."""
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
            return _embed_image(value)
        return value.replace("#", f"#{name}-", 1)
    value = re.sub(r"url\(#", f"url(#{name}-", value)
    if key == "style":
        for stand_in, variable in _PAGE_COLOURS.items():
            value = value.replace(stand_in, variable)
        value = re.sub(r"font-family: [^;]*;? ?", "", value)  # that of the page
    return value
