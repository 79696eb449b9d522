"""Attention maps of a few images: N × N, and one query's map over the image.

TAP/ADL, Fig. 1, 3, 4 and I; AFAT, Fig. 1 and 3. Each figure explains its colours, and a cosine below a map is computed
from the map as shown.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.analysis.attention_stability import layer_cosines
from holdfast.analysis.base import Analysis, FigureSpec, Found, Page, Results, Tick
from holdfast.analysis.layer_info import describe_layers, layer_name
from holdfast.analysis.results import AnalysisResult
from holdfast.analysis.settings import CELLS, PICTURES, Setting, Settings
from holdfast.analysis.token_maps import CELL, STATES, Parts, add, check_image, join_batches, spaced_indices, state_name
from holdfast.errors import HoldfastError
from holdfast.plotting.style import check_some, colour_bar, grid_of, new_figure, note, picture, row_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from holdfast.analysis.probe import Probe
    from holdfast.attention import AttentionHandle

MAP_COLOURS, OVERLAY_COLOURS = "Reds", "inferno"
QUERY_COLOUR = "#00e5ff"
BRIGHT = (
    99.5  # percentile of the values of a column that gets the darkest red: one token must not make all others white
)
SCALE = f"share of the column's {BRIGHT:g}th percentile; more is clipped"


def _two_shares(name: str, value: Any) -> None:
    if len(value) != 2 or not all(0 <= place <= 1 for place in value):
        raise HoldfastError(f"{name} must be two shares in [0, 1], row and column, got {value}")


def _read_query(text: Any) -> tuple[float, float]:
    try:
        row, column = (float(word) for word in str(text).split(","))
    except ValueError as error:
        raise HoldfastError(f"query must be two shares such as 0.5,0.5, row and column, got {text!r}") from error
    return row, column


QUERY = Setting(
    "query",
    (0.5, 0.5),
    "row and column of the query, as shares of the image",
    check=_two_shares,
    read=_read_query,
)


def run(subject: "Probe", settings: Settings, tick: Tick) -> Found:
    """Attention of a few images, clean and under the first cell.

    Arrays, each with the images first: ``images/<state>``; ``mean/<state>/<layer>`` (M, M), heads averaged;
    ``heads/<state>`` (heads, M, M) of the last layer; ``query/<state>/<layer>`` (rows, columns), where attention is
    between places of the image; ``cosine`` (layers,), the mean of the heads' cosines.
    """
    import torch

    from holdfast.analysis.probe import as_bytes

    parts: Parts = {}
    layers: list[dict[str, Any]] = []
    for batch in subject.batches(subject.some(settings.pictures)):
        states = {"clean": subject.clean(batch), "corrupted": subject.corrupted(batch, settings.cells[0])}
        seen = {}
        for state, pixels in states.items():
            add(parts, f"images/{state}", as_bytes(pixels))
            _, seen[state] = subject.look(pixels)
            layers = describe_layers(seen[state])
            _keep_maps(parts, state, seen[state])
            _keep_queries(parts, state, seen[state], settings, layers)
        cosines = [layer.flattened.mean(dim=1) for layer in layer_cosines(seen["clean"], seen["corrupted"])]
        add(parts, "cosine", torch.stack(cosines, dim=1).cpu().numpy())
        tick(len(batch.ids))
    return {"layers": layers, "cell": settings.cells[0]}, join_batches(parts)


def _keep_maps(parts: Parts, state: str, handles: "list[AttentionHandle]") -> None:
    from holdfast.analysis.query_maps import middle_window, small_map

    for number, handle in enumerate(handles):
        mean = small_map(handle, window=middle_window(handle))
        add(parts, f"mean/{state}/{number}", mean.cpu().numpy().astype(np.float16))
    heads = small_map(handles[-1], window=middle_window(handles[-1]), average=False)
    add(parts, f"heads/{state}", heads.cpu().numpy().astype(np.float16))


def _keep_queries(
    parts: Parts, state: str, handles: "list[AttentionHandle]", settings: Settings, layers: list[dict[str, Any]]
) -> None:
    from holdfast.analysis.query_maps import place_of, query_map

    for number, handle in enumerate(handles):
        if handle.kind == "channel" or handle.grid is None:
            continue
        place = place_of(handle, settings.query)
        looked_at = query_map(handle, place)
        add(parts, f"query/{state}/{number}", looked_at.cpu().numpy().astype(np.float16))
        layers[number] |= {"query": [place.row, place.column], "queries": list(place.grid)}


# ---------------------------------------------------------------------------------------------- N × N maps


def mean_maps(results: Results, *, image: int = 0, layer: int = -1) -> "Figure":
    """One image, clean above and corrupted below, beside the models' maps, heads averaged (TAP/ADL, Fig. 1 and 3).

    A row is a query, a column the token it attends to: vertical lines are tokens that all queries attend to.
    """
    check_image(check_some(results, "maps result")[0], image)
    figure = new_figure(CELL * (1 + len(results)) * 1.25 + 0.9, CELL * 2 * 1.3)
    axes = grid_of(figure, 2, 1 + len(results))
    for row, state in enumerate(STATES):
        picture(axes[row, 0], results[0].arrays[f"images/{state}"][image])
        row_title(axes[row, 0], state_name(results[0], state))
    for column, result in enumerate(results, start=1):
        maps = [_map(result, state, image, layer) for state in STATES]
        shown, top = _column(axes[:, column], maps)
        name = layer_name(layer % len(_layers(result)))
        title = f"{result.label}\n{name}{_kind(_layers(result)[layer])}, 1 is {top:.2g}"
        axes[0, column].set_title(title, fontsize=8)
    colour_bar(figure, shown, list(axes.ravel()), label=SCALE)
    return figure


def head_grid(result: AnalysisResult, *, image: int = 0) -> "Figure":
    """The maps of every head of the last layer, clean above and corrupted below (TAP/ADL, Fig. 4)."""
    check_image(result, image)
    maps = [result.arrays[f"heads/{state}"][image].astype(float) for state in STATES]  # heads M M
    heads, last = len(maps[0]), len(_layers(result)) - 1
    title = f"{result.label}: heads of {layer_name(last)}{_kind(_layers(result)[last])}"
    figure = new_figure(CELL * heads + 1.3, CELL * 2 + 0.9, title=title)
    axes = grid_of(figure, 2, heads)
    for head in range(heads):
        shown, top = _column(axes[:, head], [maps[0][head], maps[1][head]])
        axes[0, head].set_title(f"head {head + 1}, 1 is {top:.2g}", fontsize=8)
    _finish_grid(figure, axes, result, shown)
    return figure


def layer_grid(result: AnalysisResult, *, image: int = 0) -> "Figure":
    """The maps of every layer, heads averaged, clean above and corrupted below (TAP/ADL, Fig. I)."""
    check_image(result, image)
    layers = _layers(result)
    figure = new_figure(CELL * len(layers) + 1.3, CELL * 2 + 1.0, title=f"{result.label}: layers, heads averaged")
    axes = grid_of(figure, 2, len(layers))
    for layer, described in enumerate(layers):
        shown, top = _column(axes[:, layer], [_map(result, state, image, layer) for state in STATES])
        axes[0, layer].set_title(f"{layer_name(layer)}{_kind(described)}\n1 is {top:.2g}", fontsize=7)
    _finish_grid(figure, axes, result, shown)
    return figure


def _column(axes: np.ndarray, maps: Sequence[np.ndarray]) -> tuple[Any, float]:
    """Draw a clean map above a corrupted one on one scale, with their cosine; returns the value of colour 1, too."""
    top = max(float(np.percentile(np.stack(maps), BRIGHT)), 1e-9)
    for axis, attention in zip(axes, maps, strict=True):
        shown = picture(axis, attention / top, cmap=MAP_COLOURS, vmin=0, vmax=1)
    axes[1].set_xlabel(f"cosine {cosine(*maps):.3f}", fontsize=8)
    return shown, top


def _finish_grid(figure: "Figure", axes: np.ndarray, result: AnalysisResult, shown: Any) -> None:
    for row, state in enumerate(STATES):
        row_title(axes[row, 0], state_name(result, state))
    colour_bar(figure, shown, list(axes.ravel()), label=SCALE)
    note(figure, "cosine: of the two maps above it, as they are shown")


# ---------------------------------------------------------------------------------------------- query overlays


def query_overlays(results: Results, *, image: int = 0, layers: Sequence[int] | None = None) -> "Figure":
    """Attention of one query, clean and corrupted, layer by layer, for several models (AFAT, Fig. 1 and 3).

    The query's patch has a cyan frame; brightness is relative to the most attended token of each picture. Layers
    default to five, evenly spaced.
    """
    check_some(results, "maps result")
    columns = len(layers) if layers is not None else max(min(5, len(_layers(result))) for result in results)
    figure = new_figure(CELL * (1 + columns) + 1.6, CELL * 2 * len(results) * 1.1 + 0.5)
    axes = grid_of(figure, 2 * len(results), 1 + columns)
    for number, result in enumerate(results):
        check_image(result, image)
        chosen = list(layers) if layers is not None else spaced_indices(len(_layers(result)), columns)
        for row, state in enumerate(STATES):
            line = axes[2 * number + row]
            photograph = result.arrays[f"images/{state}"][image]
            picture(line[0], photograph)
            row_title(line[0], f"{result.label}\n{state_name(result, state)}")
            for axis, layer in zip(line[1:], chosen, strict=False):
                shown = _overlay(axis, result, photograph, state=state, image=image, layer=layer)
                if row == 0:
                    at = layer % len(_layers(result))
                    axis.set_title(f"{layer_name(at)}{_kind(_layers(result)[at])}", fontsize=8)
                else:
                    pair = [_query(result, each, image, layer) for each in STATES]
                    axis.set_xlabel(f"cosine {cosine(*pair):.3f}", fontsize=8)
            for axis in line[1 + len(chosen) :]:
                axis.set_axis_off()
    colour_bar(figure, shown, list(axes.ravel()), label="share of each picture's most attended token")
    note(figure, "cosine: of the query's two maps above it")
    return figure


def _overlay(
    axis: "Axes", result: AnalysisResult, photograph: np.ndarray, *, state: str, image: int, layer: int
) -> Any:
    from matplotlib.patches import Rectangle

    looked_at = _query(result, state, image, layer)  # rows columns
    height, width = photograph.shape[:2]
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    picture(axis, photograph.mean(axis=-1), cmap="gray", vmin=0, vmax=255)
    shade = looked_at / max(float(looked_at.max()), 1e-12)
    shown = axis.imshow(shade, cmap=OVERLAY_COLOURS, alpha=0.72, extent=extent, interpolation="none", vmin=0, vmax=1)
    row, column = _layers(result)[layer]["query"]
    rows, columns = _layers(result)[layer].get("queries", looked_at.shape)  # fewer than tokens where they are pooled
    side = height / rows, width / columns
    corner = (column * side[1] - 0.5, row * side[0] - 0.5)
    axis.add_patch(Rectangle(corner, side[1], side[0], fill=False, edgecolor=QUERY_COLOUR, linewidth=1.8))
    return shown


# ---------------------------------------------------------------------------------------------- parts


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    """Cosine similarity of two maps as vectors."""
    a, b = first.ravel().astype(float), second.ravel().astype(float)
    return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-300))


def _map(result: AnalysisResult, state: str, image: int, layer: int) -> np.ndarray:
    return result.arrays[f"mean/{state}/{layer % len(_layers(result))}"][image].astype(float)


def _query(result: AnalysisResult, state: str, image: int, layer: int) -> np.ndarray:
    return result.arrays[f"query/{state}/{layer % len(_layers(result))}"][image].astype(float)


def _layers(result: AnalysisResult) -> list[dict[str, Any]]:
    return list(result.header["layers"])


def _kind(layer: dict[str, Any]) -> str:
    """A suffix that marks maps of windows and of channels, so that they are not taken for maps of all tokens."""
    return {"window": " (one window)", "channel": " (channels)"}.get(layer["kind"], "")


def has_queries(result: AnalysisResult) -> bool:
    """Whether every layer attends between positions of the image."""
    return all(f"query/clean/{number}" in result.arrays for number in range(len(_layers(result))))


def pages(results: Results) -> Iterator[Page]:
    """Maps and overlays of each image; for one model also its heads and layers."""
    for image in range(min(len(result.arrays["images/clean"]) for result in results)):
        yield f"maps-{image + 1}", partial(mean_maps, results, image=image)
        if asking := [result for result in results if has_queries(result)]:
            yield f"query-{image + 1}", partial(query_overlays, asking, image=image)
    if len(results) == 1:
        yield "maps-heads", lambda: head_grid(results[0])
        yield "maps-layers", lambda: layer_grid(results[0])


def shown_figure(results: Results) -> "Figure":
    """Figure for a report: the query's attention; for channel attention the last layer's map."""
    asking = [result for result in results if has_queries(result)]
    return query_overlays(asking) if asking else mean_maps(results)


ANALYSIS = Analysis(
    "maps",
    "attention maps of a few images, clean and corrupted",
    run,
    settings=(CELLS, PICTURES, QUERY),
    ticks=lambda images, settings: min(images, settings.pictures),
    pages=pages,
    shown=FigureSpec(
        "Where one token looks",
        "The token in the cyan frame, clean and corrupted, layer by layer. Brightness is relative to the most attended "
        "token of each picture.",
        shown_figure,
        pixels=True,
    ),
    alike=has_queries,
)
