"""Token overfocusing: whether few tokens receive most of the attention.

TAP/ADL, Sec. 3.1, describe it in words (vertical lines in the map); the three numbers here are ours:

- ``effective_tokens``: how many tokens one query attends to, exp(entropy of its row), averaged over the queries.
  N for even attention, 1 for attention to one token.
- ``top_share``: the share of all attention that the k most attended tokens receive.
- ``column_concentration``: how unevenly attention is received, (Σ c² − 1/N) / (1 − 1/N) with c the column means: 0 if
  all tokens receive the same, 1 if one receives everything. It tells overfocusing from a diagonal map, which has
  few effective tokens too, but other ones in every row.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.analysis.rows import VALUES, by_image, map_rows
from holdfast.attention import AttentionHandle
from holdfast.errors import HoldfastError


@dataclass(frozen=True, eq=False)
class Overfocus:
    """One layer's numbers, each (B, h); means over an image's windows where attention is by window."""

    effective_tokens: Tensor
    top_share: Tensor
    column_concentration: Tensor


def overfocus(handle: AttentionHandle, *, top: int = 5, values: int = VALUES) -> Overfocus:
    """All three measures from one reading of the maps. All tokens count, class tokens too."""
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


def effective_number(weights: Tensor) -> Tensor:
    """exp(entropy) of weights that sum to one along the last axis: how many of them count."""
    return torch.special.entr(weights).sum(dim=-1).exp()


def top_share(received: Tensor, top: int) -> Tensor:
    """The sum of the ``top`` largest along the last axis."""
    return received.topk(min(top, received.shape[-1]), dim=-1).values.sum(dim=-1)


def concentration(received: Tensor) -> Tensor:
    """The normalised Herfindahl index along the last axis: 0 even, 1 all in one place."""
    even = 1 / received.shape[-1]
    if even == 1:
        return torch.ones_like(received[..., 0])
    return (received.square().sum(dim=-1) - even) / (1 - even)
