"""Analysis ``patches``: the patches that a corruption model occludes, and the loss of confidence (AFAT, Fig. 5)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from holdfast.analysis.base import Analysis, FigureSpec, Found, Numbers, Page, Results, Tick
from holdfast.analysis.results import AnalysisResult
from holdfast.analysis.settings import PICTURES, RATIO, Settings
from holdfast.analysis.token_maps import CELL, Parts, add, join_batches
from holdfast.errors import HoldfastError
from holdfast.plotting.style import check_some, colour, new_figure, picture, row_title, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from holdfast.analysis.probe import Probe

LEAST = 6  # images: a figure's width
PATCH_COLOUR = "#ff3030"


def run(subject: "Probe", settings: Settings, tick: Tick) -> Found:
    """The occluded patches and the confidence in the true class (AFAT, Fig. 5).

    Arrays: ``images``, ``occluded``; ``kept`` (images, rows, columns); ``confidence`` and ``right`` (images, 2): the
    true class's probability, clean and occluded.
    """
    import torch

    from holdfast.analysis.probe import NotApplicable, as_bytes
    from holdfast.attacks.occlusion import cover_of, cover_patches

    if not subject.answers:
        raise NotApplicable(
            "the model's classes are not those of the data, so there is no confidence in the true class"
        )
    if subject.corruptor is None:
        raise NotApplicable("there is no corruption model: only AFAT runs have one; give one with --corruptor FILE")
    parts: Parts = {}
    names = []
    corruptor = subject.corruptor.to(subject.device).eval()
    for batch in subject.batches(subject.some(max(settings.pictures, LEAST))):
        pixels, ids = subject.clean(batch), list(batch.ids)
        keep = corruptor.keep(subject.model.normalise(pixels), settings.ratio)
        cover = cover_of("normalised", subject.model, pixels, seed=subject.seed, names=[*ids], purpose="patches")
        occluded = cover_patches(pixels, keep, cover)
        logits = torch.stack([subject.model(pixels), subject.model(occluded)], dim=1)  # B 2 classes
        confidence = logits.softmax(dim=-1).gather(2, batch.targets.view(-1, 1, 1).expand(-1, 2, 1))[..., 0]
        right = logits.argmax(dim=-1) == batch.targets.unsqueeze(1)
        kept = keep[:, 0] > 0.5
        for name, value in (("images", as_bytes(pixels)), ("occluded", as_bytes(occluded))):
            add(parts, name, value)
        for name, tensor in (("kept", kept), ("confidence", confidence), ("right", right)):
            add(parts, name, tensor.cpu().numpy())
        names += [str(subject.source.classes[int(target)]) for target in batch.targets]
        tick(len(batch.ids))
    return {"ratio": settings.ratio, "names": names}, join_batches(parts)


def headline(result: AnalysisResult) -> Numbers:
    """The mean loss of confidence."""
    clean, occluded = result.arrays["confidence"].mean(axis=0)
    return {"confidence lost to chosen patches": float(clean - occluded)}


def patches_figure(results: Results, *, images: int = 6) -> "Figure":
    """Images, the patches that a corruption model occludes, and the confidence they cost (AFAT, Fig. 5).

    Several results must be of the same images under the same corruption model.
    """
    first = check_some(results, "patches result")[0].arrays
    if any(not np.array_equal(result.arrays["occluded"], first["occluded"]) for result in results[1:]):
        raise HoldfastError("models in one figure must get the same occluded images: give all the same --corruptor")
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


def signed_number(value: float) -> str:
    """Two digits with a sign, and zero without one."""
    return f"{value:+.2f}".replace("-", "−") if abs(value) >= 0.005 else "0.00"


def _frame_patches(axis: "Axes", kept: np.ndarray, shape: tuple[int, ...]) -> None:
    from matplotlib.patches import Rectangle

    side = shape[0] / kept.shape[0], shape[1] / kept.shape[1]
    for row, column in np.argwhere(~kept.astype(bool)):
        corner = (column * side[1] - 0.5, row * side[0] - 0.5)
        axis.add_patch(Rectangle(corner, side[1], side[0], fill=False, edgecolor=PATCH_COLOUR, linewidth=1))


def _confidence_bars(axis: "Axes", results: Results, column: int) -> None:
    for number, result in enumerate(results):
        clean, occluded = result.arrays["confidence"][column]
        axis.bar(3 * number, clean, color=colour(number), width=0.9)
        axis.bar(3 * number + 1, occluded, color=colour(number), width=0.9, alpha=0.45)
        axis.text(3 * number + 0.5, 1.04, signed_number(occluded - clean), ha="center", va="bottom", fontsize=6.5)
    tidy(axis)
    axis.set_ylim(0, 1.3)
    axis.set_yticks([0, 0.5, 1])
    axis.set_xticks([])


def _bar_legend(figure: "Figure", results: Results) -> None:
    from matplotlib.patches import Rectangle

    handles = [Rectangle((0, 0), 1, 1, color=colour(number)) for number in range(len(results))]
    labels = [f"{result.label}: clean, then occluded (pale)" for result in results]
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)


def occlusions(result: AnalysisResult) -> bytes:
    """The occluded images, which must be equal for all models of a figure."""
    return np.ascontiguousarray(result.arrays["occluded"]).tobytes()


def pages(results: Results) -> Iterator[Page]:
    """One figure of all results."""
    yield "patches", lambda: patches_figure(results)


ANALYSIS = Analysis(
    "patches",
    "the patches a corruption model occludes, and the confidence they cost",
    run,
    settings=(RATIO, PICTURES),
    ticks=lambda images, settings: min(images, max(settings.pictures, LEAST)),
    headline=headline,
    pages=pages,
    shown=FigureSpec(
        "Patches that the corruption model hides",
        "And the confidence that they cost (AFAT).",
        patches_figure,
        pixels=True,
    ),
    alike=occlusions,
)
