"""Figures of a report as files: SVG, PDF or PNG for print, and their numbers as CSV."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from holdfast.errors import HoldfastError, nearest
from holdfast.io import atomic
from holdfast.io.validation import comma_list, file_name
from holdfast.plotting.files import FORMATS, save_figure
from holdfast.plotting.svg import CARD, INK, LINE, MUTED, STYLE
from holdfast.reporting.figures.charts import ReportFigure

CSV = "csv"
PRINTED = {INK: "#000000", MUTED: "#444444", LINE: "#dddddd", CARD: "#ffffff"}  # the page's variables on white paper
PROPERTIES = ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor")


def parse_figure_formats(text: str) -> tuple[str, ...]:
    """Parse a comma list of ``svg``, ``pdf``, ``png`` and ``csv``."""
    chosen, known = tuple(dict.fromkeys(comma_list(text))), (*FORMATS, CSV)
    for name in chosen or ("",):
        if name not in known:
            raise HoldfastError(f"figure format must be some of {', '.join(known)}, got {text!r}{nearest(name, known)}")
    return chosen


def write_figures(figures: Sequence[ReportFigure], folder: Path, *, formats: Sequence[str]) -> list[Path]:
    """Write every figure in every format, named as on the page; return the files."""
    written: list[Path] = []
    for each in figures:
        if each.draw is None:
            continue
        with matplotlib.rc_context(STYLE):
            figure = each.draw()
            figure.suptitle("")
            path = folder / file_name(each.name, allowed="-")
            drawn = tuple(name for name in formats if name != CSV)
            figure.draw_without_rendering()  # makes the ticks, which have colours too
            if CSV in formats:
                written.append(_write_rows(path.with_name(f"{path.name}.csv"), each.rows or list(_rows_of(figure))))
            if drawn:
                written += save_figure(for_print(figure), path, formats=drawn)
    return written


def for_print(figure: Figure) -> Figure:
    """Replace the page's colour variables by black and greys."""
    figure.patch.set_facecolor("white")
    for artist in figure.findobj():
        for name in PROPERTIES:
            get, put = getattr(artist, f"get_{name}", None), getattr(artist, f"set_{name}", None)
            if get is not None and put is not None and (found := _printed(get())) is not None:
                put(found)
    return figure


def _printed(colour: Any) -> str | None:
    """The printed colour of one of the page's variables; None for any other."""
    try:
        return PRINTED.get(to_hex(np.asarray(colour)[0] if np.ndim(colour) == 2 and len(colour) == 1 else colour))
    except (ValueError, TypeError, IndexError):
        return None


def _rows_of(figure: Figure) -> Iterator[Sequence[object]]:
    """The points of all labelled curves, where a figure does not bring its numbers."""
    yield ["panel", "series", "x", "y"]
    for axes in figure.axes:
        for line in axes.lines:
            label = str(line.get_label()).removeprefix("_")
            if not label.startswith("child"):
                points = zip(np.atleast_1d(line.get_xdata()), np.atleast_1d(line.get_ydata()), strict=True)
                yield from (
                    [axes.get_title(loc="left") or axes.get_ylabel(), label, f"{x:g}", f"{y:g}"] for x, y in points
                )


def _write_rows(path: Path, rows: Sequence[Sequence[object]]) -> Path:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(path, text.getvalue())
    except OSError as error:
        raise HoldfastError(
            f"figures must go to a writable folder, got {str(path.parent)!r} ({error.strerror})"
        ) from error
    return path
