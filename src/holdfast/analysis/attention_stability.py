"""Attention stability: the cosine between the attention of an image and of its corrupted version.

Per head, without averaging heads. AFAT, Fig. 3, 4 and 8, has one score per image, the mean over layers; TAP/ADL (Guo
et al., ICCV 2023), Fig. 1, pools the cosines of all layers and heads of all images. Both are drawn from the stored
cosines. The papers do not state whether a map is one vector or a list of rows: ``flattened``, which we report, treats
it as one vector; ``row_wise`` is the mean of its rows' cosines. Severity 3 is ours.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.analysis.base import Analysis, FigureSpec, Found, Numbers, Page, Results, StudyColumn, Tick
from holdfast.analysis.layer_info import VALUES, aside, by_image, describe_layers, label_of, pad_heads, row_slices
from holdfast.analysis.results import AnalysisResult
from holdfast.analysis.settings import CELLS, Settings
from holdfast.errors import HoldfastError, nearest
from holdfast.metrics.corruption import percent_of_clean
from holdfast.metrics.intervals import jackknife_interval
from holdfast.plotting.curves import BANDS, BOXES, band, grouped_boxes, histograms, whole_numbers
from holdfast.plotting.style import check_some, colour, legend, legend_above, new_figure, note, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from holdfast.analysis.probe import Probe
    from holdfast.attention import AttentionHandle
    from holdfast.metrics.intervals import Interval


@dataclass(frozen=True, eq=False)
class HeadCosines:
    """Cosines of one layer, each (B, h)."""

    flattened: "Tensor"
    row_wise: "Tensor"


def head_cosines(clean: "AttentionHandle", corrupted: "AttentionHandle", *, values: int = VALUES) -> HeadCosines:
    """The cosine of each head's clean and corrupted map, read a few rows at a time.

    Windows of one image are parts of one vector.
    """
    import torch

    check_same_maps(clean, corrupted)
    images = by_image(clean, clean.q).shape[0]
    products = torch.zeros(3, images, clean.q.shape[1], dtype=torch.float64, device=clean.q.device)  # a·b, a·a, b·b
    rows = torch.zeros(images, clean.q.shape[1], dtype=torch.float64, device=clean.q.device)
    for part in row_slices(clean, values=values):
        a, b = (by_image(handle, handle.rows_of(part).detach().float()) for handle in (clean, corrupted))
        each = torch.stack([(a * b).sum(-1), (a * a).sum(-1), (b * b).sum(-1)]).double()  # 3 B windows h rows
        products += each.sum(dim=(2, 4))
        rows += _cosine(each).sum(dim=(1, 3))
    count = clean.q.shape[-2] * by_image(clean, clean.q).shape[1]
    return HeadCosines(_cosine(products).float(), (rows / count).float())


def layer_cosines(
    clean: "Sequence[AttentionHandle]", corrupted: "Sequence[AttentionHandle]", *, values: int = VALUES
) -> list[HeadCosines]:
    """`head_cosines` of every layer."""
    if len(clean) != len(corrupted) or not clean:
        raise HoldfastError(
            f"clean and corrupted must be the same layers, got {len(clean)} and {len(corrupted)} of them"
        )
    return [head_cosines(a, b, values=values) for a, b in zip(clean, corrupted, strict=True)]


def image_scores(cosines: "Sequence[Tensor]") -> "Tensor":
    """One score per image: the mean over all heads of all layers, from (B, h) per layer → (B,)."""
    import torch

    return torch.cat(list(cosines), dim=1).mean(dim=1)


def check_same_maps(clean: "AttentionHandle", corrupted: "AttentionHandle") -> None:
    """Raise an error for maps of different token grids, whose cosine is meaningless."""
    if clean.q.shape != corrupted.q.shape or clean.k.shape != corrupted.k.shape or clean.grid != corrupted.grid:
        raise HoldfastError(
            "clean and corrupted attention must be of the same images, heads and token grid, got "
            f"{_describe_handle(clean)} and {_describe_handle(corrupted)}; give both passes images of one size"
        )


def _cosine(products: "Tensor") -> "Tensor":
    """Cosine from a·b, a·a and b·b along the first axis."""
    import torch

    return products[0] / (products[1] * products[2]).sqrt().clamp_min(torch.finfo(products.dtype).tiny)


def _describe_handle(handle: "AttentionHandle") -> str:
    grid = "×".join(map(str, handle.grid)) if handle.grid else "?"
    return f"{handle.q.shape[0]}×{handle.q.shape[1]} maps of a {grid} grid"


# ---------------------------------------------------------------------------------------------- run and numbers


def run(subject: "Probe", settings: Settings, tick: Tick) -> Found:
    """Cosines of every image, cell, layer and head, and whether predictions are right.

    Arrays: ``flattened`` and ``row_wise`` (cells, images, layers, heads), NaN beyond a layer's heads; ``right``
    (1 + cells, images), the clean images first.
    """
    parts: dict[str, list[np.ndarray]] = {"flattened": [], "row_wise": [], "right": []}
    layers: list[dict[str, Any]] = []
    for batch in subject.batches():
        logits, clean = subject.look(subject.clean(batch))
        layers = describe_layers(clean)
        right, flattened, row_wise = [batch.right(logits)], [], []
        for cell in settings.cells:
            logits, corrupted = subject.look(subject.corrupted(batch, cell))
            cosines = layer_cosines(clean, corrupted)
            flattened.append(pad_heads([layer.flattened for layer in cosines]))
            row_wise.append(pad_heads([layer.row_wise for layer in cosines]))
            right.append(batch.right(logits))
        for name, rows in (("flattened", flattened), ("row_wise", row_wise), ("right", right)):
            parts[name].append(np.stack(rows))
        tick(len(batch.ids))
    arrays = {name: np.concatenate(rows, axis=1) for name, rows in parts.items()}
    return {"layers": layers, "cells": list(settings.cells)}, arrays


def headline(result: AnalysisResult) -> Numbers:
    """The mean cosine of each cell."""
    return {f"stability{aside(result)}, {cell}": float(scores(result, cell).mean()) for cell in result.header["cells"]}


def per_image(result: AnalysisResult) -> np.ndarray:
    """One value per image: the mean over cells, layers and heads."""
    values = result.arrays["flattened"].swapaxes(0, 1)
    return np.nanmean(values.reshape(len(values), -1), axis=1)


def scores(result: AnalysisResult, cell: str, *, rows: bool = False) -> np.ndarray:
    """One score per image: the mean over all heads of all layers, flattened maps unless ``rows``."""
    return np.nanmean(cosines_of(result, cell, rows=rows), axis=(1, 2))


def pooled_cosines(result: AnalysisResult, cell: str, *, rows: bool = False) -> np.ndarray:
    """The cosine of every head of every layer of every image, in no order."""
    values = cosines_of(result, cell, rows=rows).ravel()
    return values[~np.isnan(values)]


def cosines_of(result: AnalysisResult, cell: str, *, rows: bool = False) -> np.ndarray:
    """(images, layers, heads), NaN where a layer has fewer heads than another."""
    cells = list(result.header["cells"])
    if cell not in cells:
        raise HoldfastError(f"cell must be one of {', '.join(cells)}, got {cell!r}{nearest(cell, cells)}")
    return result.arrays["row_wise" if rows else "flattened"][cells.index(cell)]


# ---------------------------------------------------------------------------------------------- figures


def histogram(results: Results, cell: str, *, rows: bool = False) -> "Figure":
    """Histogram of the images' scores, one score per image (AFAT, Fig. 4)."""
    each = [scores(result, cell, rows=rows) for result in check_some(results, "stability result")]
    return _histogram(results, each, cell, of="images", says="one score per image: the mean over layers and heads")


def pooled_histogram(results: Results, cell: str, *, rows: bool = False) -> "Figure":
    """Histogram of the cosines of single maps, all layers and heads together (TAP/ADL, Fig. 1)."""
    each = [pooled_cosines(result, cell, rows=rows) for result in check_some(results, "stability result")]
    return _histogram(results, each, cell, of="maps", says="every head of every layer of every image counts")


def _histogram(results: Results, values: Sequence[np.ndarray], cell: str, *, of: str, says: str) -> "Figure":
    figure = new_figure(5.6, 3.4)
    axis = figure.subplots()
    histograms(axis, values, [f"{label_of(r)}, mean {s.mean():.3f}" for r, s in zip(results, values, strict=True)])
    tidy(axis, xlabel=f"cosine of clean and corrupted attention ({cell})", ylabel=f"% of {of}")
    legend(axis, loc="upper left")
    note(figure, says)
    return figure


def boxes(results: Results, *, rows: bool = False) -> "Figure":
    """Box plot of the images' scores under each cell."""
    cells = check_some(results, "stability result")[0].header["cells"]
    each = {cell: [scores(result, cell, rows=rows) for result in results] for cell in cells}
    figure = new_figure(max(4.2, 1.2 + 0.42 * (len(results) + 1) * len(cells)), 3.4)
    axis = figure.subplots()
    grouped_boxes(axis, each, [label_of(result) for result in results])
    tidy(axis, ylabel="cosine of attention")
    legend_above(figure, axis)
    note(figure, f"one score per image; {BOXES}")
    return figure


def layers_figure(results: Results, cell: str, *, rows: bool = False) -> "Figure":
    """Cosine by layer: mean and quartiles over images, heads averaged."""
    figure = new_figure(5.6, 3.4)
    axis = figure.subplots()
    for number, result in enumerate(check_some(results, "stability result")):
        band(axis, np.nanmean(cosines_of(result, cell, rows=rows), axis=2), number, label_of(result))
    tidy(axis, xlabel="layer", ylabel=f"cosine of attention ({cell})")
    whole_numbers(axis)
    legend_above(figure, axis)
    note(figure, BANDS)
    return figure


def heads_figure(result: AnalysisResult, cell: str, *, rows: bool = False) -> "Figure":
    """The mean cosine of every head of every layer."""
    cosines = cosines_of(result, cell, rows=rows)
    table = np.where(np.isnan(cosines).all(axis=0), np.nan, np.nansum(cosines, axis=0) / len(cosines))  # layers heads
    figure = new_figure(max(3.6, 1.8 + 0.46 * table.shape[1]), 1.2 + 0.36 * table.shape[0])
    axis = figure.subplots()
    low = np.floor(20 * float(np.nanmin(table)) - 1e-6) / 20
    shown = axis.imshow(table, cmap="viridis", vmin=low, vmax=1, aspect="auto")
    for (layer, head), value in np.ndenumerate(table):
        if not np.isnan(value):
            shade = "black" if value > low + 0.6 * (1 - low) else "white"
            axis.text(head, layer, f"{value:.3f}", ha="center", va="center", fontsize=7, color=shade)
    figure.colorbar(shown, ax=axis, label="mean over images").ax.tick_params(labelsize=7)
    tidy(axis, xlabel="head", ylabel="layer", title=f"{label_of(result)}: cosine under {cell}")
    axis.grid(visible=False)
    axis.set_xticks(range(table.shape[1]), [str(number + 1) for number in range(table.shape[1])])
    axis.set_yticks(range(table.shape[0]), [str(number + 1) for number in range(table.shape[0])])
    return figure


def retention_cost(results: Results) -> "Figure":
    """Retention against GMACs (FAN, Fig. 1), for results with an accuracy."""
    figure = new_figure(4.6, 3.2)
    axis = figure.subplots()
    for number, result in enumerate(results):
        kept, cost = retention(result), float(result.header["cost"]["gmacs"])
        axis.plot([cost, cost], [kept.low, kept.high], color=colour(number), linewidth=1.4, alpha=0.6)
        axis.plot(cost, kept.value, "o", markersize=6, color=colour(number), label=result.label)
    tidy(axis, xlabel="GMACs per image", ylabel="retention, %")
    axis.margins(x=0.25)
    legend_above(figure, axis)
    note(figure, "corrupted by clean accuracy; whiskers: 95 % interval over the images")
    return figure


def has_counts(result: AnalysisResult) -> bool:
    """Whether a result has an accuracy, and thus a retention."""
    return bool(result.header.get("answers") and result.header.get("cost") and result.arrays["right"][0].any())


def retention(result: AnalysisResult) -> "Interval":
    """Mean accuracy over the cells / clean accuracy, in percent, with its interval over the images."""
    right = result.arrays["right"].T.astype(np.float64)  # images, 1 + cells

    def retained_percent(means: np.ndarray) -> float:
        return float(percent_of_clean(means[1:].mean(), means[0]))

    return jackknife_interval(right, statistic=retained_percent, scale="ratio")


def pages(results: Results) -> Iterator[Page]:
    """Histograms, layers, box plots; for one model its heads, for several their retention."""
    cells = results[0].header["cells"]
    yield "stability-histogram", lambda: histogram(results, cells[0])
    yield "stability-pooled", lambda: pooled_histogram(results, cells[0])
    yield "stability-layers", lambda: layers_figure(results, cells[0])
    if len(results) > 1 or len(cells) > 1:
        yield "stability-boxes", lambda: boxes(results)
    if len(results) == 1:
        yield "stability-heads", lambda: heads_figure(results[0], cells[0])
    counted = [result for result in results if has_counts(result)]
    if len(counted) > 1:
        yield "retention-cost", lambda: retention_cost(counted)


ANALYSIS = Analysis(
    "stability",
    "cosine of clean and corrupted attention, per image, layer and head",
    run,
    settings=(CELLS,),
    headline=headline,
    pages=pages,
    shown=FigureSpec(
        "Does attention stay where it was?",
        "Cosine of the attention of an image and of the same image corrupted, one score per image. 1: nothing moved. "
        "Boxes are quartiles, whiskers the 5th and 95th percentile of the images.",
        boxes,
    ),
    columns=(
        StudyColumn(
            "stability",
            "stability",
            per_image,
            "higher",
            "cosine between attention on clean images and under gaussian noise, severity 3 (TAP+ADL, Figure 5)",
        ),
    ),
)
