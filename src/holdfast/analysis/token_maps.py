"""Helpers of figures of single images: states, sizes and colour scales."""

from typing import TYPE_CHECKING

import numpy as np

from holdfast.analysis.layer_info import layer_name
from holdfast.analysis.results import AnalysisResult
from holdfast.errors import HoldfastError
from holdfast.plotting.style import colour_bar, grid_of, new_figure, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Parts = dict[str, list[np.ndarray]]
CELL = 1.45  # inches per panel
STATES = ("clean", "corrupted")


def add(parts: Parts, name: str, array: np.ndarray) -> None:
    """Append a batch to an array's parts."""
    parts.setdefault(name, []).append(array)


def join_batches(parts: Parts) -> dict[str, np.ndarray]:
    """Concatenate the batches of each array."""
    return {name: np.concatenate(rows) for name, rows in parts.items()}


def state_name(result: AnalysisResult, state: str) -> str:
    """``clean``, or the corruption's name."""
    return "clean" if state == "clean" else str(result.header["cell"]).replace("_", " ").replace("/", " ")


def check_image(result: AnalysisResult, image: int) -> None:
    """Raise an error for an image index out of range."""
    key = "images" if "images" in result.arrays else "images/clean"
    count = len(result.arrays[key])
    if not 0 <= image < count:
        raise HoldfastError(f"image must lie in 0…{count - 1} for this result of {count} images, got {image}")


def spaced_indices(count: int, wanted: int) -> list[int]:
    """``wanted`` evenly spaced integers from 0 to count − 1, ends included."""
    return sorted({round(place) for place in np.linspace(0, count - 1, min(wanted, count))})


def token_maps(
    result: AnalysisResult, name: str, *, image: int, low: float, high: float, title: str, cmap: str, scale: str
) -> "Figure":
    """One image and one map per layer, all on the same colour scale."""
    check_image(result, image)
    count = sum(key.startswith(f"{name}/") for key in result.arrays)
    columns = min(1 + count, 8)
    rows = -(-(1 + count) // columns)
    figure = new_figure(CELL * columns + 0.9, (CELL + 0.2) * rows + 0.4, title=title)
    axes = grid_of(figure, rows, columns).ravel()
    picture(axes[0], result.arrays["images"][image])
    for block in range(count):
        values = result.arrays[f"{name}/{block}"][image].astype(float)
        note = f"{layer_name(block)}: {values.mean():.2f}"
        shown = picture(axes[1 + block], values, title=note, cmap=cmap, vmin=low, vmax=high)
    for axis in axes[1 + count :]:
        axis.set_axis_off()
    colour_bar(figure, shown, list(axes), label=scale)
    return figure
