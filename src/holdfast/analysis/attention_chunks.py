"""Chunked reading of attention maps, a few rows at a time, so that long sequences fit into memory."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from holdfast.attention import AttentionHandle

VALUES = 2**23  # values of a map in memory at once: 32 MB in single precision


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
