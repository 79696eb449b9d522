"""Curves and distributions of the analyses, of one model or of several: from stored results, never from models."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from holdfast.analysis.results import Result
from holdfast.errors import HoldfastError, nearest
from holdfast.reporting.figure_parts import check_some, colour, grid_of, legend, legend_above, marker, new_figure, tidy

Results = Sequence[Result]


# ---------------------------------------------------------------------------------------------- stability


def stability_scores(result: Result, cell: str, *, rows: bool = False) -> np.ndarray:
    """One score per image: the mean over all heads of all layers, flattened maps unless ``rows``."""
    return np.nanmean(_cosines(result, cell, rows=rows), axis=(1, 2))


def stability_histogram(results: Results, cell: str, *, rows: bool = False) -> Figure:
    """How the images' scores are distributed (AFAT, Fig. 4; TAP/ADL, Fig. 5)."""
    check_some(results, "stability result")
    figure = new_figure(5.6, 3.2)
    axis = figure.subplots()
    scores = [stability_scores(result, cell, rows=rows) for result in results]
    histograms(axis, scores, [f"{r.label}, mean {s.mean():.3f}" for r, s in zip(results, scores, strict=True)])
    tidy(axis, xlabel=f"cosine of clean and corrupted attention ({cell})", ylabel="% of images")
    legend(axis, loc="upper left")
    return figure


def stability_boxes(results: Results, *, rows: bool = False) -> Figure:
    """The scores of several models under every cell as boxes: median, quartiles, 5th and 95th percentile."""
    check_some(results, "stability result")
    cells = [cell for cell in results[0].header["cells"] if all(cell in result.header["cells"] for result in results)]
    scores = {cell: [stability_scores(result, cell, rows=rows) for result in results] for cell in cells}
    figure = new_figure(max(4.2, 1.2 + 0.42 * (len(results) + 1) * len(cells)), 3.2)
    axis = figure.subplots()
    grouped_boxes(axis, scores, [result.label for result in results])
    tidy(axis, ylabel="cosine of attention")
    legend_above(figure, axis)
    return figure


def stability_layers(results: Results, cell: str, *, rows: bool = False) -> Figure:
    """Where in the network attention changes: mean and quartiles over images per layer, and over heads."""
    check_some(results, "stability result")
    figure = new_figure(5.6, 3.2)
    axis = figure.subplots()
    for number, result in enumerate(results):
        per_layer = np.nanmean(_cosines(result, cell, rows=rows), axis=2)  # images layers
        band(axis, per_layer, number, result.label)
    tidy(axis, xlabel="layer", ylabel=f"cosine of attention ({cell})")
    whole_numbers(axis)
    legend_above(figure, axis)
    return figure


def stability_heads(result: Result, cell: str, *, rows: bool = False) -> Figure:
    """The mean cosine of every head of every layer."""
    cosines = _cosines(result, cell, rows=rows)
    table = np.where(np.isnan(cosines).all(axis=0), np.nan, np.nansum(cosines, axis=0) / len(cosines))  # layers heads
    figure = new_figure(max(3.6, 1.8 + 0.46 * table.shape[1]), 1.2 + 0.36 * table.shape[0])
    axis = figure.subplots()
    low = np.floor(20 * float(np.nanmin(table)) - 1e-6) / 20
    shown = axis.imshow(table, cmap="viridis", vmin=low, vmax=1, aspect="auto")
    for (layer, head), value in np.ndenumerate(table):
        if not np.isnan(value):
            shade = "black" if value > low + 0.6 * (1 - low) else "white"
            axis.text(head, layer, f"{value:.3f}", ha="center", va="center", fontsize=7, color=shade)
    figure.colorbar(shown, ax=axis).ax.tick_params(labelsize=7)
    tidy(axis, xlabel="head", ylabel="layer", title=f"{result.label}: cosine under {cell}")
    axis.grid(visible=False)
    axis.set_xticks(range(table.shape[1]), _numbers(table.shape[1]))
    axis.set_yticks(range(table.shape[0]), _numbers(table.shape[0]))
    return figure


def _cosines(result: Result, cell: str, *, rows: bool) -> np.ndarray:
    """(images, layers, heads), NaN where a layer has fewer heads than another."""
    cells = list(result.header["cells"])
    if cell not in cells:
        raise HoldfastError(f"cell must be one of {', '.join(cells)}, got {cell!r}{nearest(cell, cells)}")
    return result.arrays["row_wise" if rows else "flattened"][cells.index(cell)]


# ---------------------------------------------------------------------------------------------- occlusion


def occlusion_spread(results: Results) -> Figure:
    """Accuracy over masks (AFAT, Fig. 1, right), and the attention's cosines over masks and images (Fig. 3, right)."""
    check_some(results, "occlusion result")
    figure = new_figure(max(6.4, 4 + 0.6 * len(results)), 3.2)
    left, right = grid_of(figure, 1, 2)[0]
    labels = [result.label for result in results]
    accuracy = [_percent_right(result, "right") for result in results]
    ratio, masks = results[0].header["ratio"], accuracy[0].size
    grouped_boxes(left, {"": accuracy}, labels)
    for number, result in enumerate(results):
        clean = _percent_right(result, "right_clean")
        left.plot(number, clean, "*", color=colour(number), markersize=9, markeredgecolor="black", markeredgewidth=0.5)
    tidy(left, ylabel="accuracy in % (star: not occluded)", title=f"{masks} masks, {100 * ratio:g} % of the patches")
    left.set_xticks(range(len(labels)), labels, rotation=20, ha="right")
    histograms(right, [result.arrays["scores"].ravel() for result in results], labels)
    tidy(right, xlabel="cosine of attention", ylabel="% of images × masks")
    legend(right, loc="upper left")
    return figure


def _percent_right(result: Result, name: str) -> np.ndarray:
    """Accuracy over the images; NaN where the model's classes are not those of the data."""
    share = 100 * result.arrays[name].mean(axis=0, dtype=np.float64)
    return share if result.header.get("answers", True) else share * np.nan


# ---------------------------------------------------------------------------------------------- overfocus, diversity


def overfocus_layers(results: Results) -> Figure:
    """Effective tokens, share of the top tokens and column concentration by layer."""
    check_some(results, "overfocusing result")
    top = results[0].header["top"]
    panels = {
        "effective_tokens": "effective tokens per query",
        "top_share": f"share of the top {top} tokens",
        "column_concentration": "column concentration",
    }
    figure = new_figure(9.6, 3.2)
    for axis, (name, label) in zip(grid_of(figure, 1, 3)[0], panels.items(), strict=True):
        for number, result in enumerate(results):
            band(axis, np.nanmean(result.arrays[name], axis=2), number, result.label)
        tidy(axis, xlabel="layer", ylabel=label)
        axis.set_ylim(bottom=0)
        whole_numbers(axis)
    legend_above(figure, axis)
    return figure


def diversity_layers(results: Results) -> Figure:
    """The mean cosine between two heads, by layer: low is diverse."""
    check_some(results, "diversity result")
    figure = new_figure(5.6, 3.2)
    axis = figure.subplots()
    for number, result in enumerate(results):
        similarity = result.arrays["similarity"]  # images layers
        band(axis, similarity, number, f"{result.label}, mean {np.nanmean(similarity):.2f}")
    tidy(axis, xlabel="layer", ylabel="cosine between two heads")
    axis.set_ylim(0, 1)
    whole_numbers(axis)
    legend_above(figure, axis)
    return figure


# ---------------------------------------------------------------------------------------------- noise decay


def noise_decay_figure(results: Results) -> Figure:
    """What is left of noise, and the significant eigenvalues, over relative depth (FAN, Fig. 3)."""
    check_some(results, "noise decay result")
    figure = new_figure(8.4, 3.4)
    left, right = grid_of(figure, 1, 2)[0]
    for number, result in enumerate(results):
        depth = np.linspace(0, 1, result.arrays["change"].shape[1] + 1)[1:]
        band(left, result.arrays["change"], number, result.label, places=depth)
        band(right, result.arrays["eigenvalues"].astype(float), number, result.label, places=depth)
    header = results[0].header
    tidy(left, xlabel="depth (first to last block)", ylabel="‖f(x+n) − f(x)‖ / ‖f(x)‖")
    left.set_title(f"noise N(0, {header['noise_std']:g}²) on normalised images", fontsize=9)
    left.set_ylim(bottom=0)
    tidy(right, xlabel="depth (first to last block)", ylabel="significant eigenvalues")
    right.set_title(f"eigenvalues of Z Zᵀ above {header['epsilon']:g} · largest", fontsize=9)
    right.set_ylim(bottom=0)
    legend_above(figure, left)
    return figure


def decay_and_eigenvalues(result: Result) -> Figure:
    """One model's noise decay beside its insignificant eigenvalues, block by block (FAN, Fig. 3 a and b)."""
    change, eigenvalues = result.arrays["change"], result.arrays["eigenvalues"]
    figure = new_figure(5.6, 3.2)
    axis = figure.subplots()
    band(axis, change, 0, "noise left")
    tidy(axis, xlabel="block", ylabel="‖f(x+n) − f(x)‖ / ‖f(x)‖", title=result.label)
    axis.set_ylim(bottom=0)
    axis.yaxis.label.set_color(colour(0))
    other = axis.twinx()
    band(other, result.arrays["tokens"] - eigenvalues.astype(float), 1, "insignificant eigenvalues")
    tidy(other, ylabel=f"insignificant eigenvalues (≤ {result.header['epsilon']:g} · largest)")
    other.grid(visible=False)
    other.spines["right"].set_visible(True)
    other.yaxis.label.set_color(colour(1))
    other.set_ylim(bottom=0)
    whole_numbers(axis)
    return figure


# ---------------------------------------------------------------------------------------------- parts


def band(axis: Axes, values: np.ndarray, number: int, label: str, *, places: np.ndarray | None = None) -> None:
    """The mean over images as a line, the quartiles as a band; ``values`` is (images, places)."""
    at = np.arange(1, values.shape[1] + 1) if places is None else places
    low, high = np.nanpercentile(values, [25, 75], axis=0)
    axis.fill_between(at, low, high, color=colour(number), alpha=0.15, linewidth=0)
    axis.plot(at, np.nanmean(values, axis=0), color=colour(number), marker=marker(number), markersize=4, label=label)


def histograms(axis: Axes, scores: Sequence[np.ndarray], labels: Sequence[str]) -> None:
    """Several distributions over the same bins, in percent; without values there is no bar."""
    known = [each[~np.isnan(each)] for each in scores]
    low = min((float(each.min()) for each in known if each.size), default=0.0)
    edges = np.linspace(min(np.floor(100 * low) / 100, 0.99), 1, 41).tolist()
    for number, (each, label) in enumerate(zip(known, labels, strict=True)):
        if each.size:
            options: dict[str, Any] = {"weights": np.full(each.size, 100 / each.size), "color": colour(number)}
            axis.hist(np.minimum(each, 1), edges, alpha=0.4, label=label, **options)
            axis.hist(np.minimum(each, 1), edges, histtype="step", linewidth=1.2, **options)


def grouped_boxes(axis: Axes, groups: Mapping[str, Sequence[np.ndarray]], labels: Sequence[str]) -> None:
    """Boxes of several models, group by group."""
    width, count = 0.8, len(labels)
    step = count + 1
    for number, label in enumerate(labels):
        values = [np.asarray(group[number]) for group in groups.values()]
        boxes = axis.boxplot(
            values,
            positions=[place * step + number for place in range(len(values))],
            widths=width,
            whis=(5, 95),
            showfliers=False,
            patch_artist=True,
            medianprops={"color": "black"},
            manage_ticks=False,
        )
        for box in boxes["boxes"]:
            box.set(facecolor=colour(number), alpha=0.6)
        boxes["boxes"][0].set_label(label)
    axis.set_xticks([place * step + (count - 1) / 2 for place in range(len(groups))], list(groups))
    axis.set_xlim(-1, (len(groups) - 1) * step + count)


def whole_numbers(axis: Axes) -> None:
    """Ticks at whole layers only."""
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _numbers(count: int) -> list[str]:
    return [str(number + 1) for number in range(count)]
