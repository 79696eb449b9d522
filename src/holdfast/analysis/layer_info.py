"""Layers of an analysis result: plain data for the header, and labels for figures."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.analysis.results import AnalysisResult

if TYPE_CHECKING:
    from torch import Tensor

    from holdfast.attention import AttentionHandle


def describe_layers(handles: "list[AttentionHandle]") -> list[dict[str, Any]]:
    """The layers of a result as plain data."""
    return [
        {
            "name": handle.name,
            "kind": handle.kind,
            "heads": int(handle.q.shape[1]),
            "tokens": int(handle.k.shape[-2]),
            "grid": list(map(int, handle.grid)) if handle.grid else None,
            "prefix": handle.prefix,
            "windows": list(map(int, handle.windows)) if handle.windows else None,
        }
        for handle in handles
    ]


def pad_heads(layers: "list[Tensor]") -> np.ndarray:
    """(B, h) per layer → (B, layers, most heads), NaN for missing heads."""
    heads = max(layer.shape[1] for layer in layers)
    stacked = np.full((layers[0].shape[0], len(layers), heads), np.nan, dtype=np.float32)
    for number, layer in enumerate(layers):
        stacked[:, number, : layer.shape[1]] = layer.cpu().numpy()
    return stacked


def kinds(result: AnalysisResult) -> set[str]:
    """The kinds of attention in a result; empty if unknown."""
    return {str(layer.get("kind")) for layer in result.header.get("layers") or ()}


def aside(result: AnalysisResult) -> str:
    """A suffix for names, so that channels and windows are not taken for all tokens."""
    found = kinds(result)
    return " (channels)" if "channel" in found else " (windows)" if "window" in found else ""


def label_of(result: AnalysisResult) -> str:
    """The model's name in a figure, with the kind of its attention unless it is over all tokens."""
    return result.label + aside(result)


def unit(result: AnalysisResult) -> str:
    """The unit of attention: tokens or channels."""
    return "channels" if "channel" in kinds(result) else "tokens"


def layer_name(number: int) -> str:
    """The name of a layer, counted from 1, in figures."""
    return f"layer {number + 1}"


VALUES = 2**23  # of a map in memory at once, so that long sequences fit: 32 MB in single precision


def map_rows(handle: "AttentionHandle", *, values: int = VALUES) -> "Iterator[Tensor]":
    """The maps as (B, windows, h, some rows, keys), in order; attention over all tokens is one window."""
    for rows in row_slices(handle, values=values):
        yield by_image(handle, handle.rows_of(rows).detach().float())


def row_slices(handle: "AttentionHandle", *, values: int = VALUES) -> Iterator[slice]:
    """The slices that `map_rows` reads."""
    queries = handle.q.shape[-2]
    row = handle.q.shape[0] * handle.q.shape[1] * handle.k.shape[-2]
    chunk = max(1, values // max(1, row))
    for start in range(0, queries, chunk):
        yield slice(start, min(start + chunk, queries))


def by_image(handle: "AttentionHandle", maps: "Tensor") -> "Tensor":
    """(B · windows, …) → (B, windows, …)."""
    return maps.unflatten(0, (-1, window_count(handle)))


def window_count(handle: "AttentionHandle") -> int:
    """Windows per image; 1 unless the attention is of the window kind."""
    return handle.windows[0] * handle.windows[1] if handle.kind == "window" and handle.windows else 1
