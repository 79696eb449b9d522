"""Attention diversification loss (ADL): tokens should not all attend to the same few (Guo et al., ICCV 2023).

A pure function of attention handles first, the term that objectives use second.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from holdfast.attention import AttentionHandle
from holdfast.errors import HoldfastError

Variant = Literal["released", "paper"]
CHUNK = 64  # rows at a time in the chunked form
CHUNK_FROM = 1024  # tokens from which the chunked form is chosen


def layer_diversification(
    handle: AttentionHandle, *, tau: float = 2.0, variant: Variant = "released", chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """How alike tokens attend: mean cosine of the rows with the mean row, above τ/N; and the share of active rows.

    TAP+ADL, Eq. 1–2. ``released`` thresholds the mean of the raw rows with >, as the code does, so it is zero until
    some token collects more than τ/N on average; ``paper`` takes the mean of the thresholded rows, with ≥. Heads are
    averaged first. Class tokens are dropped and rows renormalised, windows count as images (ours: no code was released
    for those).

    With ``chunk``, attention is computed for that many rows at a time and again in the backward pass: the same values
    and gradients, with memory that grows linearly with the tokens.
    """
    tokens = handle.q.shape[-2] - handle.prefix
    threshold = tau / tokens
    starts = range(handle.prefix, handle.prefix + tokens, chunk or tokens)
    parts = [slice(start, min(start + (chunk or tokens), handle.prefix + tokens)) for start in starts]

    def run(function: partial[Tensor]) -> Tensor:
        return checkpoint(function, use_reentrant=False) if chunk else function()

    sums = [run(partial(_column_sums, handle, rows, threshold, variant)) for rows in parts]
    mean = torch.stack(sums).sum(dim=0) / tokens  # B N
    if variant == "released":
        mean = mean * (mean > threshold)
    cosines = torch.cat([run(partial(_cosines, handle, rows, threshold, variant, mean)) for rows in parts], dim=1)
    return cosines.mean(), (cosines.detach() > 0).float().mean()


def _rows(handle: AttentionHandle, rows: slice) -> Tensor:
    """Attention of some patch tokens to all patch tokens, heads averaged: (B, rows, N)."""
    maps = handle.rows_of(rows)[..., handle.prefix :]
    if handle.prefix:
        maps = maps / maps.sum(dim=-1, keepdim=True)
    return maps.mean(dim=1)


def _above(rows: Tensor, threshold: float, variant: Variant) -> Tensor:
    return rows * (rows > threshold if variant == "released" else rows >= threshold)


def _column_sums(handle: AttentionHandle, rows: slice, threshold: float, variant: Variant) -> Tensor:
    attention = _rows(handle, rows)
    return (attention if variant == "released" else _above(attention, threshold, variant)).sum(dim=1)


def _cosines(handle: AttentionHandle, rows: slice, threshold: float, variant: Variant, mean: Tensor) -> Tensor:
    attention = _above(_rows(handle, rows), threshold, variant)
    return F.cosine_similarity(mean.unsqueeze(1), attention, dim=-1, eps=1e-8)


@dataclass(frozen=True)
class AttentionDiversification:
    """The loss over all blocks with token or window attention, divided by their number (plus 1e-6, as released).

    Attributes:
        weight: factor in the objective.
        tau: attention below τ/N counts as none.
        variant: ``released`` or ``paper``; see ``layer_diversification``.
        chunk: rows at a time; None chooses by the number of tokens, 0 never chunks.
    """

    weight: float = 1.0
    tau: float = 2.0
    variant: Variant = "released"
    chunk: int | None = None

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise HoldfastError(f"weight of ADL must not be negative, got {self.weight}")
        if self.tau <= 0:
            raise HoldfastError(f"tau of ADL must be positive, got {self.tau}")
        if self.variant not in ("released", "paper"):
            raise HoldfastError(f"variant of ADL must be 'released' or 'paper', got {self.variant!r}")

    def __call__(self, attention: Sequence[AttentionHandle]) -> tuple[Tensor, dict[str, Tensor]]:
        """The unweighted loss of a forward pass, and figures for the log."""
        handles = [handle for handle in attention if handle.kind in ("token", "window")]
        if not handles:
            raise HoldfastError("ADL needs a model with token attention, and this one has none")
        layers = [
            layer_diversification(handle, tau=self.tau, variant=self.variant, chunk=self._chunk(handle))
            for handle in handles
        ]
        loss = torch.stack([layer for layer, _ in layers]).sum() / (len(layers) + 1e-6)
        active = torch.stack([share for _, share in layers]).mean()
        return loss, {"adl": loss.detach(), "adl_active_rows": active}

    def _chunk(self, handle: AttentionHandle) -> int | None:
        if self.chunk is not None:
            return self.chunk or None
        return CHUNK if handle.q.shape[-2] >= CHUNK_FROM else None
