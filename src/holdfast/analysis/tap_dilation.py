"""Analysis of TAP: the mean dilation of each token in models with token-aware pooling."""

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
    from torch import Tensor

    from holdfast.analysis.probe import Probe


def run(subject: "Probe", settings: Settings, tick: Tick) -> Found:
    """Arrays: ``images``; ``dilation/<block>`` (images, rows, columns); ``weights`` (blocks, branches), the mean."""
    import torch

    from holdfast.analysis.probe import NotApplicable, as_bytes
    from holdfast.layers.tap import TokenAwarePooling

    if not any(isinstance(module, TokenAwarePooling) for module in subject.inner.modules()):
        raise NotApplicable("the model has no token-aware pooling (TAP)")
    parts: Parts = {}
    weights: list[np.ndarray] = []
    for batch in subject.batches(subject.some(settings.pictures)):
        pixels = subject.clean(batch)
        add(parts, "images", as_bytes(pixels))
        with subject.watch_inner() as seen:
            subject.model(pixels)
        pools = seen.tap_weights()
        for block, weight in enumerate(pools):
            add(parts, f"dilation/{block}", mean_dilation(weight).cpu().numpy().astype(np.float16))
        weights.append(torch.stack([weight.mean(dim=(2, 3)) for weight in pools], dim=1).cpu().numpy())
        tick(len(batch.ids))
    mean = np.concatenate(weights).mean(axis=0)
    return {"branches": int(mean.shape[1])}, {**join_batches(parts), "weights": mean}


def mean_dilation(weights: "Tensor") -> "Tensor":
    """Σ dilation · weight of every token, (B, branches, H, W) → (B, H, W): 0 is the token alone."""
    import torch

    dilations = torch.arange(weights.shape[1], dtype=weights.dtype, device=weights.device)
    return (weights * dilations.view(-1, 1, 1)).sum(dim=1)


def dilation_figure(result: AnalysisResult, *, image: int = 0) -> "Figure":
    """The mean dilation of each token in every block with TAP; 0 is the token alone."""
    title = f"{result.label}: mean dilation per token (TAP)"
    widest = result.header["branches"] - 1
    scale = "mean dilation; 0 is the token alone"
    return token_maps(result, "dilation", image=image, low=0, high=widest, title=title, cmap="viridis", scale=scale)


def pages(results: Results) -> Iterator[Page]:
    """One figure for each image."""
    for image in range(len(results[0].arrays["images"])):
        yield f"dilation-{image + 1}", partial(dilation_figure, results[0], image=image)


ANALYSIS = Analysis(
    "dilation",
    "how wide every token looks (TAP)",
    run,
    settings=(PICTURES,),
    ticks=lambda images, settings: min(images, settings.pictures),
    pages=pages,
    compares=False,
    shown=FigureSpec(
        "How wide tokens look",
        "TAP's mean dilation.",
        lambda results: dilation_figure(results[0]),
        pixels=True,
        each=True,
    ),
)
