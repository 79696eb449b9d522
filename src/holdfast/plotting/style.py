"""Figure style: sizes, colours, axes and legends, without pyplot's global state.

Matplotlib is imported only when a figure is drawn, so that importing an analysis stays cheap.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.io import atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, distinguishable for colour-blind readers; brown for their yellow, which is lost on white
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
SMALL, NORMAL = 8, 9
DPI = 110
T = TypeVar("T")


def new_figure(width: float, height: float, *, title: str = "") -> "Figure":
    """Create an empty figure; width and height in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    if title:
        figure.suptitle(title, fontsize=NORMAL + 1)
    return figure


def note(figure: "Figure", text: str) -> None:
    """Add a line below the figure that explains bands, whiskers and colours."""
    figure.supxlabel(text, fontsize=SMALL - 1, color="0.35")


def colour_bar(figure: "Figure", mappable: Any, axes: Any, *, label: str) -> None:
    """Add a labelled colour bar."""
    bar = figure.colorbar(mappable, ax=axes, shrink=0.8)
    bar.ax.tick_params(labelsize=SMALL - 1)
    bar.set_label(label, fontsize=SMALL - 1)


def grid_of(figure: "Figure", rows: int, columns: int, **options: Any) -> np.ndarray:
    """Create subplots as a 2-D array, also for one row or column."""
    return np.asarray(figure.subplots(rows, columns, squeeze=False, **options))


def colour(number: int) -> str:
    """The colour of the n-th model."""
    return COLOURS[number % len(COLOURS)]


def marker(number: int) -> str:
    """The marker of the n-th model; models of one colour have different markers, up to 64 models."""
    return MARKERS[marker_number(number)]


def line_look(number: int, points: int) -> dict[str, Any]:
    """Colour of the n-th model's line, and a few markers, which tell lines apart in grey too."""
    return {"color": colour(number), "marker": marker(number), "markersize": 4, "markevery": max(1, points // 6)}


def marker_number(number: int) -> int:
    """The place of the n-th model's marker among all markers."""
    return (number + number // len(COLOURS)) % len(MARKERS)


def tidy(axis: "Axes", *, xlabel: str = "", ylabel: str = "", title: str = "") -> None:
    """Set labels, small ticks, a faint grid and no frame."""
    from matplotlib.ticker import ScalarFormatter

    axis.set_xlabel(xlabel, fontsize=NORMAL)
    axis.set_ylabel(ylabel, fontsize=NORMAL)
    if title:
        axis.set_title(title, fontsize=NORMAL)
    axis.tick_params(labelsize=SMALL)
    for side in (axis.xaxis, axis.yaxis):  # print 0.99998 rather than 1e-5 + 0.9999
        if isinstance(numbers := side.get_major_formatter(), ScalarFormatter):
            numbers.set_useOffset(False)
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def legend(axis: "Axes", **options: Any) -> None:
    """Add a legend without a frame if there are labelled artists."""
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=SMALL, frameon=False, **options)


def legend_above(figure: "Figure", axis: "Axes") -> None:
    """Place the legend of one axis above the whole figure, where it hides nothing."""
    handles, labels = axis.get_legend_handles_labels()
    if handles:
        inches = 0.5 + 0.07 * max(map(len, labels))  # width of an entry in small letters
        columns = max(1, min(len(labels), int(figure.get_figwidth() / inches)))
        figure.legend(handles, labels, loc="outside upper center", ncols=columns, fontsize=SMALL, frameon=False)


def picture(axis: "Axes", image: np.ndarray, *, title: str = "", **options: Any) -> Any:
    """Show an image without axes, or a map with ticks at its first and last cells, without interpolation."""
    drawn = axis.imshow(image, interpolation="none", **options)
    numbered = np.ndim(image) == 2 and "extent" not in options
    axis.set_xticks([0, image.shape[1] - 1] if numbered else [])
    axis.set_yticks([0, image.shape[0] - 1] if numbered else [])
    axis.tick_params(labelsize=SMALL - 1, length=2, pad=1)
    axis.spines[:].set_visible(False)
    if title:
        axis.set_title(title, fontsize=SMALL)
    return drawn


def row_title(axis: "Axes", text: str) -> None:
    """Add a label to the left of a row of images."""
    axis.set_ylabel(text, fontsize=SMALL, rotation=0, ha="right", va="center", labelpad=6)


def save_png(figure: "Figure", path: Path, *, dpi: int = DPI) -> Path:
    """Write a figure atomically as PNG."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replace_file(path) as temporary:
            figure.savefig(temporary, dpi=dpi, format="png", pil_kwargs={"optimize": True})
    except OSError as error:
        raise HoldfastError(f"figures must go to a writable folder, got {str(path.parent)!r}") from error
    return path


def check_some(things: Sequence[T], what: str) -> Sequence[T]:
    """Return ``things``; raises an error if there are none."""
    if not len(things):
        raise HoldfastError(f"a figure needs at least one {what}, got none")
    return things
