"""Analysis of TORA's gates: the class token's weights of the two adapters, heads averaged, as in the slides.

For ``adapter-fusion``, each token's own weights. Figures show the share of each adapter per patch; the two sum to 1.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from holdfast.analysis.base import Analysis, FigureSpec, Found, Page, Results, Tick
from holdfast.analysis.results import AnalysisResult
from holdfast.analysis.settings import PICTURES, Settings
from holdfast.analysis.token_maps import Parts, add, join_batches, token_maps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from holdfast.analysis.probe import Probe


def run(subject: "Probe", settings: Settings, tick: Tick) -> Found:
    """Arrays: ``images``; ``gates/<block>`` (images, rows, columns): the robustness adapter's share, 0 to 1 (TORA).

    The accuracy adapter has the rest.
    """
    from holdfast.analysis.probe import NotApplicable, as_bytes
    from holdfast.attacks.pixel_model import backbone
    from holdfast.models.tora import ToraViT, gate_maps

    model = backbone(subject.model)
    if not isinstance(model, ToraViT):
        raise NotApplicable("the model has no gated adapters (TORA)")
    parts: Parts = {}
    for batch in subject.batches(subject.some(settings.pictures)):
        pixels = subject.clean(batch)
        maps = gate_maps(model, subject.model.normalise(pixels))
        share = maps["rob"] / (maps["acc"] + maps["rob"])  # B blocks rows columns
        add(parts, "images", as_bytes(pixels))
        for block in range(share.shape[1]):
            add(parts, f"gates/{block}", share[:, block].cpu().numpy().astype(np.float16))
        tick(len(batch.ids))
    return {"method": model.settings.method}, join_batches(parts)


def whose(result: AnalysisResult) -> str:
    """The owner of the gate, for titles."""
    return "every token's" if result.header.get("method") == "adapter-fusion" else "the class token's"


def gates_figure(result: AnalysisResult, *, image: int = 0, adapter: str = "robustness") -> "Figure":
    """The share of one adapter in the class token's gate for each patch, layer by layer; 0.5 is even."""
    title = f"{result.label}: the {adapter} adapter's share in {whose(result)} gate (TORA)"
    shown = result if adapter == "robustness" else _other(result)
    scale = f"share of the {adapter} adapter; 0.5 is even"
    return token_maps(shown, "gates", image=image, low=0, high=1, title=title, cmap="RdBu_r", scale=scale)


def _other(result: AnalysisResult) -> AnalysisResult:
    shares = {name: 1 - array for name, array in result.arrays.items() if name.startswith("gates/")}
    return AnalysisResult(result.kind, result.header, {**result.arrays, **shares})


def pages(results: Results) -> Iterator[Page]:
    """One figure for each image and adapter."""
    for image in range(len(results[0].arrays["images"])):
        yield f"gates-{image + 1}", partial(gates_figure, results[0], image=image)
        yield f"gates-{image + 1}-accuracy", partial(gates_figure, results[0], image=image, adapter="accuracy")


ANALYSIS = Analysis(
    "gates",
    "weight of each adapter in the class token's gate, by position (TORA)",
    run,
    settings=(PICTURES,),
    ticks=lambda images, settings: min(images, settings.pictures),
    pages=pages,
    compares=False,
    shown=FigureSpec(
        "Which adapter the class token listens to",
        "Share of the robustness adapter in what the class token's gate takes from every place; the accuracy adapter "
        "has the rest (TORA).",
        lambda results: gates_figure(results[0]),
        pixels=True,
        each=True,
    ),
)
