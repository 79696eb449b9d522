"""The values behind a drawn figure: where its points lie on the page, and what each of them says."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FuncFormatter

MOST = 1500  # points of one figure that can be asked; of longer curves every so-many-th
POINTS = 72  # per inch, which is what SVG counts in
_SAID: WeakKeyDictionary[Line2D, Sequence[str]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Value:
    """One point: its place in points from the upper left corner, whose it is, and what it says."""

    x: float
    y: float
    label: str
    text: str


def say(line: Line2D, texts: Sequence[str]) -> None:
    """What the points of a line say, one text each, where label and axes do not tell everything."""
    _SAID[line] = tuple(texts)


def named_artists(figure: Figure) -> dict[str, str]:
    """Give everything with a label an id in the SVG: labels by id, so that a page can hide what belongs to a model."""
    ids: dict[str, str] = {}
    for artist, label in _labelled(figure):
        ids.setdefault(label, f"label{len(ids)}")
        artist.set_gid(ids[label])
    return {id: label for label, id in ids.items()}


def values_of(figure: Figure) -> list[Value]:
    """The points of all curves and dots of a figure that has been drawn."""
    lines = [(axes, line) for axes in figure.axes for line in axes.lines if _says_something(line)]
    total = sum(len(np.atleast_1d(line.get_xdata())) for _, line in lines)
    step = max(1, -(-total // MOST))
    return [value for axes, line in lines for value in _points(figure, axes, line, step)]


def _labelled(figure: Figure) -> Iterator[tuple[Artist, str]]:
    for axes in figure.axes:
        for artist in (*axes.lines, *axes.collections):
            if label := _label(artist):
                yield artist, label
        legends: list[Any] = [axes.get_legend()] if axes.get_legend() is not None else []
        for legend in (*legends, *figure.legends):
            for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=False):
                for artist in (text, handle):
                    yield artist, text.get_text()


def _label(artist: Artist) -> str:
    """What the legend calls it; artists that belong to another one are labelled by an underscore and its label."""
    label = str(artist.get_label() or "")
    return "" if label.startswith("_child") else label.removeprefix("_")


def _says_something(line: Line2D) -> bool:
    return not str(line.get_label()).startswith("_") or line.get_marker() not in ("None", "none", "", None)


def _points(figure: Figure, axes: Axes, line: Line2D, step: int) -> Iterator[Value]:
    if line.get_transform() != axes.transData:  # a line across the axes has no values
        return
    xs, ys = (np.atleast_1d(np.asarray(data, dtype=float))[::step] for data in (line.get_xdata(), line.get_ydata()))
    places = axes.transData.transform(np.stack([xs, ys], axis=1)) * POINTS / figure.dpi
    height = figure.get_figheight() * POINTS
    texts = _SAID.get(line, ())[::step] or [_text(axes, line, x, y) for x, y in zip(xs, ys, strict=True)]
    for text, (right, up) in zip(texts, places, strict=True):
        if isfinite(right) and isfinite(up):
            yield Value(float(right), float(height - up), _label(line), text)


def _text(axes: Axes, line: Line2D, x: float, y: float) -> str:
    return "\n".join(filter(None, [_label(line), _said(axes.xaxis, x), _said(axes.yaxis, y)]))


def _said(axis: Axis, value: float) -> str:
    """``severity 3``, ``accuracy, %: 71.2``; the name of the tick where ticks have names."""
    label, tick = axis.get_label_text(), _tick(axis, value)
    return f"{label}: {tick}" if label else tick


def _tick(axis: Axis, value: float) -> str:
    if isinstance(axis.get_major_formatter(), FixedFormatter | FuncFormatter):
        places = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=False)
        named = [text.get_text() for place, text in places if abs(place - value) < 1e-9]
        if named and named[0]:
            return named[0]
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
