"""What all figures share: size, colours, quiet axes, an atomic PNG. Figures are objects; pyplot's state is not used.

Nothing here imports matplotlib before a figure is drawn, so that an analysis with its figures costs nothing to import.
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

# Okabe and Ito's colours, told apart by colour-blind readers and in grey
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
SMALL, NORMAL = 8, 9
DPI = 110
T = TypeVar("T")


def new_figure(width: float, height: float, *, title: str = "") -> "Figure":
    """An empty figure of so many inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    if title:
        figure.suptitle(title, fontsize=NORMAL + 1)
    return figure


def note(figure: "Figure", text: str) -> None:
    """A line below the figure: what bands, whiskers and colours mean."""
    figure.supxlabel(text, fontsize=SMALL - 1, color="0.35")


def colour_bar(figure: "Figure", shown: Any, axes: Any, *, label: str) -> None:
    """A colour bar with its scale in words."""
    bar = figure.colorbar(shown, ax=axes, shrink=0.8)
    bar.ax.tick_params(labelsize=SMALL - 1)
    bar.set_label(label, fontsize=SMALL - 1)


def grid_of(figure: "Figure", rows: int, columns: int, **options: Any) -> np.ndarray:
    """Axes as an array of two axes, also for one row or column."""
    return np.asarray(figure.subplots(rows, columns, squeeze=False, **options))


def colour(number: int) -> str:
    """The colour of the n-th model."""
    return COLOURS[number % len(COLOURS)]


def marker(number: int) -> str:
    """The marker of the n-th model."""
    return MARKERS[number % len(MARKERS)]


def tidy(axis: "Axes", *, xlabel: str = "", ylabel: str = "", title: str = "") -> None:
    """Labels, small ticks, no box, a faint grid."""
    from matplotlib.ticker import ScalarFormatter

    axis.set_xlabel(xlabel, fontsize=NORMAL)
    axis.set_ylabel(ylabel, fontsize=NORMAL)
    if title:
        axis.set_title(title, fontsize=NORMAL)
    axis.tick_params(labelsize=SMALL)
    for side in (axis.xaxis, axis.yaxis):  # 0.99998 rather than 1e-5 + 0.9999
        if isinstance(numbers := side.get_major_formatter(), ScalarFormatter):
            numbers.set_useOffset(False)
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def legend(axis: "Axes", **options: Any) -> None:
    """A legend without a box, if there is anything to tell apart."""
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=SMALL, frameon=False, **options)


def legend_above(figure: "Figure", axis: "Axes") -> None:
    """The legend of one axis over the whole figure, where it hides nothing; of one model it is its name."""
    handles, labels = axis.get_legend_handles_labels()
    if handles:
        inches = 0.5 + 0.07 * max(map(len, labels))  # of one entry, in small letters
        columns = max(1, min(len(labels), int(figure.get_figwidth() / inches)))
        figure.legend(handles, labels, loc="outside upper center", ncols=columns, fontsize=SMALL, frameon=False)


def picture(axis: "Axes", image: np.ndarray, *, title: str = "", **options: Any) -> Any:
    """An image without axes, or a map with the numbers of its first and last cells; both keep hard edges."""
    shown = axis.imshow(image, interpolation="none", **options)
    numbered = np.ndim(image) == 2 and "extent" not in options
    axis.set_xticks([0, image.shape[1] - 1] if numbered else [])
    axis.set_yticks([0, image.shape[0] - 1] if numbered else [])
    axis.tick_params(labelsize=SMALL - 1, length=2, pad=1)
    axis.spines[:].set_visible(False)
    if title:
        axis.set_title(title, fontsize=SMALL)
    return shown


def row_title(axis: "Axes", text: str) -> None:
    """A label left of a row of pictures."""
    axis.set_ylabel(text, fontsize=SMALL, rotation=0, ha="right", va="center", labelpad=6)


def save_png(figure: "Figure", path: Path, *, dpi: int = DPI) -> Path:
    """Write a figure in one move."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replace_file(path) as temporary:
            figure.savefig(temporary, dpi=dpi, format="png", pil_kwargs={"optimize": True})
    except OSError as error:
        raise HoldfastError(f"figures must go to a folder we can write to, got {str(path.parent)!r}") from error
    return path


def check_some(things: Sequence[T], what: str) -> Sequence[T]:
    """What a figure is to show, refused if it is nothing."""
    if not len(things):
        raise HoldfastError(f"a figure needs at least one {what}, got none")
    return things
