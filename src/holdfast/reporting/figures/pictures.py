"""A figure on the page, with its title and caption."""

from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup
from matplotlib.figure import Figure

from holdfast.reporting.figures.drawing import drawn, drawn_png


@dataclass(frozen=True)
class Picture:
    """SVG, or the address of a PNG; ``wide`` ones take the whole width of the page, those ``aside`` are folded away."""

    name: str
    title: str
    caption: str = ""
    svg: Markup | None = None
    png: str = ""
    wide: bool = False
    aside: bool = False


def svg_picture(draw: Callable[[], Figure], *, name: str, title: str, caption: str = "", wide: bool = False) -> Picture:
    """Curves and dots, in the page's colours."""
    return Picture(name, title, caption, svg=drawn(draw, name=name, description=title), wide=wide)


def png_picture(
    draw: Callable[[], Figure], *, name: str, title: str, caption: str = "", aside: bool = False
) -> Picture:
    """Images and maps: pixels that must stay square are not for SVG."""
    return Picture(name, title, caption, png=drawn_png(draw), wide=True, aside=aside)
