"""Head diversity: the mean cosine between the attention maps of a layer's heads.

TAP/ADL, Sec. 4.1.2 and Fig. 4: the mean cosine between the maps of two different heads, reported as 0.63 for
FAN-B-Hybrid and 0.27 with TAP and ADL. The paper's details are not published; here: maps flattened,
all h(h−1)/2 pairs.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.analysis.base import Analysis, FigureSpec, Found, Numbers, Page, Results, StudyColumn, Tick
from holdfast.analysis.layer_info import VALUES, aside, by_image, describe_layers, label_of, map_rows
from holdfast.analysis.results import AnalysisResult
from holdfast.analysis.settings import Settings
from holdfast.plotting.curves import BANDS, band, whole_numbers
from holdfast.plotting.style import check_some, legend_above, new_figure, note, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from holdfast.analysis.probe import Probe
    from holdfast.attention import AttentionHandle


def head_similarity(handle: "AttentionHandle", *, values: int = VALUES) -> "Tensor":
    """The cosine between every two heads' flattened maps, (B, h, h)."""
    import torch

    images, heads = by_image(handle, handle.q).shape[0], handle.q.shape[1]
    products = torch.zeros(images, heads, heads, dtype=torch.float64, device=handle.q.device)
    for rows in map_rows(handle, values=values):
        flat = rows.transpose(1, 2).flatten(2)  # B h (windows rows keys)
        products += (flat @ flat.mT).double()
    norms = products.diagonal(dim1=1, dim2=2).sqrt()
    return (products / (norms.unsqueeze(1) * norms.unsqueeze(2))).float()


def mean_pairwise(similarity: "Tensor") -> "Tensor":
    """The mean over all pairs of different heads, (B, h, h) → (B,); NaN for a single head."""
    heads = similarity.shape[-1]
    pairs = similarity.triu(diagonal=1).sum(dim=(1, 2))
    return pairs / (heads * (heads - 1) / 2) if heads > 1 else pairs * float("nan")


def run(subject: "Probe", settings: Settings, tick: Tick) -> Found:
    """Arrays: ``similarity`` (images, layers), and ``matrix/<layer>`` (heads, heads), the mean over the images."""
    import torch

    similarity: list[np.ndarray] = []
    sums: list[Tensor] = []
    layers: list[dict[str, Any]] = []
    for batch in subject.batches():
        _, handles = subject.look(subject.clean(batch))
        layers = describe_layers(handles)
        each = [head_similarity(handle) for handle in handles]
        similarity.append(torch.stack([mean_pairwise(layer) for layer in each], dim=1).cpu().numpy())
        totals = [layer.sum(dim=0).double().cpu() for layer in each]
        sums = totals if not sums else [old + new for old, new in zip(sums, totals, strict=True)]
        tick(len(batch.ids))
    joined = np.concatenate(similarity)
    matrices = {f"matrix/{n}": (total / len(joined)).float().numpy() for n, total in enumerate(sums)}
    return {"layers": layers}, {"similarity": joined, **matrices}


def headline(result: AnalysisResult) -> Numbers:
    """The mean over images and layers."""
    return {f"cosine between heads{aside(result)}": float(np.nanmean(result.arrays["similarity"]))}


def per_image(result: AnalysisResult) -> np.ndarray:
    """The mean over layers."""
    return np.nanmean(result.arrays["similarity"], axis=1)


def layers_figure(results: Results) -> "Figure":
    """The mean cosine between two heads, by layer: low is diverse."""
    figure = new_figure(5.6, 3.4)
    axis = figure.subplots()
    for number, result in enumerate(check_some(results, "diversity result")):
        similarity = result.arrays["similarity"]  # images layers
        band(axis, similarity, number, f"{label_of(result)}, mean {np.nanmean(similarity):.2f}")
    tidy(axis, xlabel="layer", ylabel="cosine between two heads")
    axis.set_ylim(0, 1)
    whole_numbers(axis)
    legend_above(figure, axis)
    note(figure, f"{BANDS}; of every image the mean over all pairs of heads")
    return figure


def pages(results: Results) -> Iterator[Page]:
    """One figure of all results."""
    yield "diversity-layers", lambda: layers_figure(results)


ANALYSIS = Analysis(
    "diversity",
    "how alike the heads of a layer are",
    run,
    headline=headline,
    pages=pages,
    shown=FigureSpec(
        "Do heads look at different things?",
        "Mean cosine of two heads of a layer. Low: they differ. Lines are means over images, bands their quartiles.",
        layers_figure,
    ),
    columns=(StudyColumn("head_similarity", "head sim.", per_image, "lower", "mean cosine between heads"),),
)
