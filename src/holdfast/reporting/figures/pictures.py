"""A figure on the page, with its title and caption."""

from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup
from matplotlib.figure import Figure

from holdfast.reporting.figures.drawing import drawn


@dataclass(frozen=True)
class Picture:
    """An SVG; ``wide`` ones take the whole width of the page, those ``aside`` are folded away."""

    name: str
    title: str
    svg: Markup
    caption: str = ""
    wide: bool = False
    aside: bool = False


def svg_picture(
    draw: Callable[[], Figure],
    *,
    name: str,
    title: str,
    caption: str = "",
    wide: bool = False,
    aside: bool = False,
) -> Picture:
    """Curves, dots, images and maps, with the page's ink."""
    return Picture(name, title, drawn(draw, name=name, description=title), caption, wide=wide, aside=aside)
