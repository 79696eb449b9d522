"""Token overfocusing: whether few tokens receive most of the attention.

TAP/ADL, Sec. 3.1, describe it in words (vertical lines in the map); the three numbers here are ours:

- ``effective_tokens``: how many tokens one query attends to, exp(entropy of its row), averaged over the queries.
  N for even attention, 1 for attention to one token.
- ``top_share``: the share of all attention that the k most attended tokens receive.
- ``column_concentration``: how unevenly attention is received, (Σ c² − 1/N) / (1 − 1/N) with c the column means: 0 if
  all tokens receive the same, 1 if one receives everything. It tells overfocusing from a diagonal map, which has
  few effective tokens too, but other ones in every row.

Where channels attend to channels (XCiT) the same numbers count channels, and every name says so.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.analysis.base import Analysis, FigureSpec, Found, Numbers, Page, Results, StudyColumn, Tick
from holdfast.analysis.layer_info import VALUES, by_image, describe_layers, label_of, map_rows, pad_heads, unit
from holdfast.analysis.results import AnalysisResult
from holdfast.analysis.settings import Setting, Settings, at_least
from holdfast.errors import HoldfastError
from holdfast.plotting.curves import BANDS, band, whole_numbers
from holdfast.plotting.style import check_some, grid_of, legend_above, new_figure, note, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from holdfast.analysis.probe import Probe
    from holdfast.attention import AttentionHandle

TOP = Setting("top", 5, "tokens that count as the most attended", int, at_least(1))


@dataclass(frozen=True, eq=False)
class Overfocus:
    """Measures of one layer, each (B, h); means over an image's windows for window attention."""

    effective_tokens: "Tensor"
    top_share: "Tensor"
    column_concentration: "Tensor"


def overfocus(handle: "AttentionHandle", *, top: int = 5, values: int = VALUES) -> Overfocus:
    """All three measures from one pass over the maps, of all tokens including class tokens."""
    import torch

    if top < 1:
        raise HoldfastError(f"top must be at least 1, got {top}")

    queries = handle.q.shape[-2]
    shape = (*by_image(handle, handle.q).shape[:3], handle.k.shape[-2])  # B windows h keys
    received = torch.zeros(shape, dtype=torch.float64, device=handle.q.device)
    effective = torch.zeros(shape[:3], dtype=torch.float64, device=handle.q.device)
    for rows in map_rows(handle, values=values):
        received += rows.sum(dim=-2)
        effective += effective_number(rows).sum(dim=-1)
    received /= queries
    return Overfocus(
        (effective / queries).mean(dim=1).float(),
        top_share(received, top).mean(dim=1).float(),
        concentration(received).mean(dim=1).float(),
    )


def effective_number(weights: "Tensor") -> "Tensor":
    """exp(entropy) of weights that sum to one along the last axis: their effective number."""
    import torch

    return torch.special.entr(weights).sum(dim=-1).exp()


def top_share(received: "Tensor", top: int) -> "Tensor":
    """The sum of the ``top`` largest along the last axis."""
    return received.topk(min(top, received.shape[-1]), dim=-1).values.sum(dim=-1)


def concentration(received: "Tensor") -> "Tensor":
    """The normalised Herfindahl index along the last axis: 0 if even, 1 if one entry has everything."""
    even = 1 / received.shape[-1]
    if even == 1:
        return received[..., 0] * 0 + 1
    return (received.square().sum(dim=-1) - even) / (1 - even)


def run(subject: "Probe", settings: Settings, tick: Tick) -> Found:
    """Arrays: ``effective_tokens``, ``top_share``, ``column_concentration``, each (images, layers, heads)."""
    parts: dict[str, list[np.ndarray]] = {"effective_tokens": [], "top_share": [], "column_concentration": []}
    layers: list[dict[str, Any]] = []
    for batch in subject.batches():
        _, handles = subject.look(subject.clean(batch))
        layers = describe_layers(handles)
        measured = [overfocus(handle, top=settings.top) for handle in handles]
        for name, rows in parts.items():
            rows.append(pad_heads([getattr(layer, name) for layer in measured]))
        tick(len(batch.ids))
    return {"layers": layers, "top": settings.top}, {name: np.concatenate(rows) for name, rows in parts.items()}


def headline(result: AnalysisResult) -> Numbers:
    """The means of the last layer."""
    last = {name: float(np.nanmean(result.arrays[name][:, -1])) for name in result.arrays}
    return {
        f"effective {unit(result)}, last layer": last["effective_tokens"],
        f"share of top {result.header['top']} {unit(result)}, last layer": last["top_share"],
        f"column concentration ({unit(result)}), last layer": last["column_concentration"],
    }


def top_share_per_image(result: AnalysisResult) -> np.ndarray:
    """The mean over layers and heads."""
    values = result.arrays["top_share"]
    return np.nanmean(values.reshape(len(values), -1), axis=1)


def layers_figure(results: Results) -> "Figure":
    """Effective tokens, share of the top tokens and column concentration by layer (channels for channel attention)."""
    first = check_some(results, "overfocusing result")[0]
    panels = {
        "effective_tokens": f"effective {unit(first)} per query",
        "top_share": f"share of the top {first.header['top']} {unit(first)}",
        "column_concentration": f"column concentration ({unit(first)})",
    }
    figure = new_figure(9.6, 3.4)
    for axis, (name, label) in zip(grid_of(figure, 1, 3)[0], panels.items(), strict=True):
        for number, result in enumerate(results):
            band(axis, np.nanmean(result.arrays[name], axis=2), number, label_of(result))
        tidy(axis, xlabel="layer", ylabel=label)
        axis.set_ylim(bottom=0)
        whole_numbers(axis)
    legend_above(figure, axis)
    note(figure, f"{BANDS}, heads averaged")
    return figure


def pages(results: Results) -> Iterator[Page]:
    """One figure of all results."""
    yield "overfocus-layers", lambda: layers_figure(results)


ANALYSIS = Analysis(
    "overfocus",
    "how many tokens receive most of the attention",
    run,
    settings=(TOP,),
    headline=headline,
    pages=pages,
    shown=FigureSpec(
        "Does attention crowd onto a few tokens?",
        "By layer. More effective tokens, and less attention in the top ones, is a wider look. Lines are means over "
        "images, bands their quartiles.",
        layers_figure,
        panels=True,
    ),
    columns=(
        StudyColumn(
            "top_share", "top share", top_share_per_image, "lower", "attention received by the 5 most attended tokens"
        ),
    ),
    alike=unit,
)
