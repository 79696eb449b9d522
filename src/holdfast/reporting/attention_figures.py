"""Pictures of single images: attention maps, overlays, groups, patches, dilations, gates. From stored results alone."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy.optimize import linear_sum_assignment

from holdfast.analysis.results import Result
from holdfast.errors import HoldfastError
from holdfast.reporting.figure_parts import COLOURS, check_some, colour, grid_of, new_figure, picture, row_title, tidy

Results = Sequence[Result]
CELL = 1.45  # inches of one small picture
MAP_COLOURS, OVERLAY_COLOURS = "Reds", "inferno"
QUERY_COLOUR, PATCH_COLOUR = "#00e5ff", "#ff3030"
STATES = ("clean", "corrupted")


# ---------------------------------------------------------------------------------------------- N × N maps


def mean_maps(results: Results, *, image: int = 0, layer: int = -1) -> Figure:
    """One image, clean above and corrupted below, beside the models' maps, heads averaged (TAP/ADL, Fig. 1 and 3).

    A row is a query, a column the token it attends to: vertical lines are tokens that everybody looks at.
    """
    check_some(results, "maps result")
    _check_image(results[0], image)
    figure = new_figure(CELL * (1 + len(results)) * 1.25 + 0.5, CELL * 2 * 1.3)
    axes = grid_of(figure, 2, 1 + len(results))
    for row, state in enumerate(STATES):
        picture(axes[row, 0], results[0].arrays[f"images/{state}"][image])
        row_title(axes[row, 0], _state_name(results[0], state))
    for column, result in enumerate(results, start=1):
        maps = [_map(result, state, image, layer) for state in STATES]
        top = _bright(np.stack(maps))
        for row, attention in enumerate(maps):
            picture(axes[row, column], attention, cmap=MAP_COLOURS, vmin=0, vmax=top)
        place = _layers(result)[layer]
        axes[0, column].set_title(f"{result.label}\nlayer {_number(result, layer)}{_kind(place)}", fontsize=8)
        axes[1, column].set_xlabel(f"cosine {_score(result, image, layer):.3f}", fontsize=8)
    return figure


def head_grid(result: Result, *, image: int = 0) -> Figure:
    """The maps of every head of the last layer, clean above and corrupted below (TAP/ADL, Fig. 4)."""
    _check_image(result, image)
    maps = [result.arrays[f"heads/{state}"][image].astype(float) for state in STATES]  # heads M M
    heads = len(maps[0])
    title = f"{result.label}: heads of layer {_number(result, -1)}{_kind(_layers(result)[-1])}"
    figure = new_figure(CELL * heads + 0.9, CELL * 2 + 0.7, title=title)
    axes = grid_of(figure, 2, heads)
    for row, state in enumerate(STATES):
        for head in range(heads):
            top = _bright(np.stack([maps[0][head], maps[1][head]]))
            picture(axes[row, head], maps[row][head], cmap=MAP_COLOURS, vmin=0, vmax=top)
            if row == 0:
                axes[row, head].set_title(f"head {head + 1}", fontsize=8)
        row_title(axes[row, 0], _state_name(result, state))
    return figure


def layer_grid(result: Result, *, image: int = 0) -> Figure:
    """The maps of every layer, heads averaged, clean above and corrupted below (TAP/ADL, Fig. I)."""
    _check_image(result, image)
    layers = len(_layers(result))
    figure = new_figure(CELL * layers + 0.9, CELL * 2 + 0.8, title=f"{result.label}: layers, heads averaged")
    axes = grid_of(figure, 2, layers)
    for layer in range(layers):
        maps = [_map(result, state, image, layer) for state in STATES]
        top = _bright(np.stack(maps))
        for row, attention in enumerate(maps):
            picture(axes[row, layer], attention, cmap=MAP_COLOURS, vmin=0, vmax=top)
        axes[0, layer].set_title(f"{_number(result, layer)}{_kind(_layers(result)[layer])}", fontsize=8)
        axes[1, layer].set_xlabel(f"cosine {_score(result, image, layer):.3f}", fontsize=8)
    for row, state in enumerate(STATES):
        row_title(axes[row, 0], _state_name(result, state))
    return figure


# ---------------------------------------------------------------------------------------------- query overlays


def query_overlays(results: Results, *, image: int = 0, layers: Sequence[int] | None = None) -> Figure:
    """Where one query looks, clean and corrupted, layer by layer, for several models (AFAT, Fig. 1 and 3).

    The query's patch has a cyan frame; brightness is relative to the most attended token of each picture. Layers
    default to five, evenly spaced.
    """
    check_some(results, "maps result")
    columns = len(layers) if layers is not None else max(min(5, len(_layers(result))) for result in results)
    figure = new_figure(CELL * (1 + columns) + 1.2, CELL * 2 * len(results) * 1.1 + 0.3)
    axes = grid_of(figure, 2 * len(results), 1 + columns)
    for number, result in enumerate(results):
        _check_image(result, image)
        chosen = list(layers) if layers is not None else spaced(len(_layers(result)), columns)
        for row, state in enumerate(STATES):
            line = axes[2 * number + row]
            photograph = result.arrays[f"images/{state}"][image]
            picture(line[0], photograph)
            row_title(line[0], f"{result.label}\n{_state_name(result, state)}")
            for axis, layer in zip(line[1:], chosen, strict=False):
                _overlay(axis, result, photograph, state=state, image=image, layer=layer)
                if row == 0:
                    name = f"layer {_number(result, layer)}{_kind(_layers(result)[layer])}"
                    axis.set_title(name, fontsize=8)
                else:
                    axis.set_xlabel(f"cosine {_score(result, image, layer):.3f}", fontsize=8)
            for axis in line[1 + len(chosen) :]:
                axis.set_axis_off()
    return figure


def _overlay(axis: Axes, result: Result, photograph: np.ndarray, *, state: str, image: int, layer: int) -> None:
    looked_at = result.arrays[f"query/{state}/{layer % len(_layers(result))}"][image].astype(float)  # rows columns
    height, width = photograph.shape[:2]
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    picture(axis, photograph.mean(axis=-1), cmap="gray", vmin=0, vmax=255)
    shade = looked_at / max(float(looked_at.max()), 1e-12)
    axis.imshow(shade, cmap=OVERLAY_COLOURS, alpha=0.72, extent=extent, interpolation="nearest", vmin=0, vmax=1)
    row, column = _layers(result)[layer]["query"]
    rows, columns = _layers(result)[layer].get("queries", looked_at.shape)  # fewer than tokens where they are pooled
    side = height / rows, width / columns
    corner = (column * side[1] - 0.5, row * side[0] - 0.5)
    axis.add_patch(Rectangle(corner, side[1], side[0], fill=False, edgecolor=QUERY_COLOUR, linewidth=1.8))


def spaced(count: int, wanted: int) -> list[int]:
    """``wanted`` whole numbers from 0 to count − 1, first and last among them."""
    return sorted({round(place) for place in np.linspace(0, count - 1, min(wanted, count))})


# ---------------------------------------------------------------------------------------------- groups


def groups_figure(result: Result, *, image: int = 0, blocks: Sequence[int] | None = None) -> Figure:
    """The groups of tokens of some blocks over the image, clean above and corrupted below (FAN, Fig. 1, 4 and 9)."""
    _check_image(result, image)
    names = list(result.header["modules"])
    chosen = list(blocks) if blocks is not None else spaced(len(names), 8)
    title = f"{result.label}: {result.header['clusters']} groups of tokens per block"
    figure = new_figure(CELL * (1 + len(chosen)) + 0.9, CELL * 2 + 0.8, title=title)
    axes = grid_of(figure, 2, 1 + len(chosen))
    colours = ListedColormap(COLOURS[: result.header["clusters"]])
    photographs = [result.arrays[f"images/{state}"][image] for state in STATES]
    for row, state in enumerate(STATES):
        picture(axes[row, 0], photographs[row])
        row_title(axes[row, 0], _state_name(result, state))
    for column, block in enumerate(chosen, start=1):
        clean, corrupted = (result.arrays[f"groups/{state}/{block}"][image] for state in STATES)
        for row, groups in enumerate((clean, same_names(corrupted, clean))):
            _groups_over(axes[row, column], photographs[row], groups, colours)
        axes[0, column].set_title(names[block], fontsize=7)
        axes[1, column].set_xlabel(f"agree {100 * np.mean(same_names(corrupted, clean) == clean):.0f} %", fontsize=8)
    return figure


def same_names(groups: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """The same groups, named so that as many tokens as possible have the name they have in ``reference``."""
    count = int(max(groups.max(), reference.max())) + 1
    shared = np.zeros((count, count), dtype=np.int64)
    np.add.at(shared, (groups.ravel(), reference.ravel()), 1)
    return linear_sum_assignment(shared, maximize=True)[1][groups]


def _groups_over(axis: Axes, photograph: np.ndarray, groups: np.ndarray, colours: ListedColormap) -> None:
    height, width = photograph.shape[:2]
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    picture(axis, photograph.mean(axis=-1), cmap="gray", vmin=0, vmax=255)
    last = colours.N - 0.5
    axis.imshow(groups, cmap=colours, alpha=0.7, vmin=-0.5, vmax=last, extent=extent, interpolation="nearest")


# ---------------------------------------------------------------------------------------------- occluded patches


def patches_figure(results: Results, *, images: int = 6) -> Figure:
    """Images, the patches that a corruption model occludes, and the confidence they cost (AFAT, Fig. 5).

    Several results must be of the same images under the same corruption model.
    """
    check_some(results, "patches result")
    first = results[0].arrays
    if any(not np.array_equal(result.arrays["occluded"], first["occluded"]) for result in results[1:]):
        raise HoldfastError("models side by side must be shown the same occluded images; give all the same --corruptor")
    count = min(images, len(first["images"]))
    figure = new_figure(CELL * count + 0.9, CELL * 2 + 1.2 + 0.18 * len(results))
    grid = figure.add_gridspec(3, count, height_ratios=[1, 1, 0.55])
    for column in range(count):
        upper, lower, bars = (figure.add_subplot(grid[row, column]) for row in range(3))
        picture(upper, first["images"][column], title=str(results[0].header["names"][column]))
        picture(lower, first["occluded"][column])
        _frame_patches(lower, first["kept"][column], first["occluded"][column].shape)
        _confidence_bars(bars, results, column)
        if column == 0:
            row_title(upper, "clean")
            row_title(lower, "occluded")
            row_title(bars, "confidence\n(true class)")
        else:
            bars.set_yticklabels([])
    _bar_legend(figure, results)
    return figure


def signed(value: float) -> str:
    """Two digits with a sign, and zero without one."""
    return f"{value:+.2f}".replace("-", "−") if abs(value) >= 0.005 else "0.00"


def _frame_patches(axis: Axes, kept: np.ndarray, shape: tuple[int, ...]) -> None:
    side = shape[0] / kept.shape[0], shape[1] / kept.shape[1]
    for row, column in np.argwhere(~kept.astype(bool)):
        corner = (column * side[1] - 0.5, row * side[0] - 0.5)
        axis.add_patch(Rectangle(corner, side[1], side[0], fill=False, edgecolor=PATCH_COLOUR, linewidth=1))


def _confidence_bars(axis: Axes, results: Results, column: int) -> None:
    for number, result in enumerate(results):
        clean, occluded = result.arrays["confidence"][column]
        axis.bar(3 * number, clean, color=colour(number), width=0.9)
        axis.bar(3 * number + 1, occluded, color=colour(number), width=0.9, alpha=0.45)
        axis.text(3 * number + 0.5, 1.04, signed(occluded - clean), ha="center", va="bottom", fontsize=6.5)
    tidy(axis)
    axis.set_ylim(0, 1.3)
    axis.set_yticks([0, 0.5, 1])
    axis.set_xticks([])


def _bar_legend(figure: Figure, results: Results) -> None:
    handles = [Rectangle((0, 0), 1, 1, color=colour(number)) for number in range(len(results))]
    labels = [f"{result.label}: clean, then occluded (pale)" for result in results]
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)


# ---------------------------------------------------------------------------------------------- TAP and TORA


def dilation_figure(result: Result, *, image: int = 0) -> Figure:
    """How wide every token looks in every block with TAP: the mean dilation, 0 = itself alone."""
    _check_image(result, image)
    widest = result.header["branches"] - 1
    title = f"{result.label}: mean dilation per token (TAP)"
    return _token_maps(result, "dilation", image=image, low=0, high=widest, title=title, cmap="viridis")


def gates_figure(result: Result, *, image: int = 0) -> Figure:
    """The share of the robustness adapter in every token of every block (TORA): 0.5 is even."""
    title = f"{result.label}: share of the robustness adapter per token (TORA)"
    return _token_maps(result, "gates", image=image, low=0, high=1, title=title, cmap="RdBu_r")


def _token_maps(result: Result, name: str, *, image: int, low: float, high: float, title: str, cmap: str) -> Figure:
    _check_image(result, image)
    count = sum(key.startswith(f"{name}/") for key in result.arrays)
    columns = min(1 + count, 8)
    rows = -(-(1 + count) // columns)
    figure = new_figure(CELL * columns + 0.7, (CELL + 0.2) * rows + 0.4, title=title)
    axes = grid_of(figure, rows, columns).ravel()
    picture(axes[0], result.arrays["images"][image])
    for block in range(count):
        values = result.arrays[f"{name}/{block}"][image].astype(float)
        note = f"block {block + 1}: {values.mean():.2f}"
        shown = picture(axes[1 + block], values, title=note, cmap=cmap, vmin=low, vmax=high)
    for axis in axes[1 + count :]:
        axis.set_axis_off()
    figure.colorbar(shown, ax=list(axes), shrink=0.8).ax.tick_params(labelsize=7)
    return figure


# ---------------------------------------------------------------------------------------------- parts


def _map(result: Result, state: str, image: int, layer: int) -> np.ndarray:
    return result.arrays[f"mean/{state}/{layer % len(_layers(result))}"][image].astype(float)


def _layers(result: Result) -> list[dict]:
    return list(result.header["layers"])


def _number(result: Result, layer: int) -> int:
    return layer % len(_layers(result)) + 1


def _kind(layer: dict) -> str:
    """Maps of windows and of channels are never shown as if they were maps of all tokens."""
    return {"window": " (one window)", "channel": " (channels)"}.get(layer["kind"], "")


def _score(result: Result, image: int, layer: int) -> float:
    return float(result.arrays["cosine"][image, layer])


def _state_name(result: Result, state: str) -> str:
    return "clean" if state == "clean" else str(result.header["cell"]).replace("_", " ").replace("/", " ")


def _bright(maps: np.ndarray) -> float:
    """The darkest red: almost the largest value, so that one token does not make all others white."""
    return max(float(np.percentile(maps, 99.5)), 1e-9)


def _check_image(result: Result, image: int) -> None:
    key = "images" if "images" in result.arrays else "images/clean"
    count = len(result.arrays[key])
    if not 0 <= image < count:
        raise HoldfastError(f"image must lie in 0…{count - 1} for this result of {count} images, got {image}")
