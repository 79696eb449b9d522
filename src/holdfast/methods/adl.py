"""Attention diversification loss (ADL): tokens should not all attend to the same few (Guo et al., ICCV 2023).

A pure function of attention handles first, the term that objectives use second.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.attention import AttentionHandle
from holdfast.errors import HoldfastError
from holdfast.methods.adl_chunked import ChunkedCosines
from holdfast.methods.loss_terms import Context, ForwardPass, Term, from_options
from holdfast.methods.objective import Loss

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
    rule = _Rule(tau / (handle.k.shape[-2] - handle.prefix), variant)
    if chunk and handle.mixing is None:
        ingredients = (handle.q, handle.k, handle.multiplier, handle.bias)
        cosines = ChunkedCosines.apply(handle.scale, handle.prefix, rule, chunk, *ingredients)
    else:
        every = slice(handle.prefix, None)
        cosines = rule.cosines(handle, every, rule.mean_row(rule.column_sums(handle, every) / tokens))
    return cosines.mean(), (cosines.detach() > 0).float().mean()


@dataclass(frozen=True)
class _Rule:
    """What counts as attention, and how alike rows of it are."""

    threshold: float
    variant: Variant

    def above(self, rows: Tensor) -> Tensor:
        """Rows without what lies below the threshold."""
        return rows * (rows > self.threshold if self.variant == "released" else rows >= self.threshold)

    def column_sums(self, handle: AttentionHandle, rows: slice) -> Tensor:
        """What every token collects from these rows, (B, N)."""
        attention = _rows(handle, rows)
        return (attention if self.variant == "released" else self.above(attention)).sum(dim=1)

    def mean_row(self, mean: Tensor) -> Tensor:
        """The mean row; the released form thresholds it now, the paper's form has done so row by row."""
        return self.above(mean) if self.variant == "released" else mean

    def cosines(self, handle: AttentionHandle, rows: slice, mean: Tensor) -> Tensor:
        """How alike these rows and the mean row are, (B, rows)."""
        return F.cosine_similarity(mean.unsqueeze(1), self.above(_rows(handle, rows)), dim=-1, eps=1e-8)


def _rows(handle: AttentionHandle, rows: slice) -> Tensor:
    """Attention of some patch tokens to all patch tokens, heads averaged: (B, rows, N)."""
    maps = handle.rows_of(rows)[..., handle.prefix :]
    if handle.prefix:
        maps = maps / maps.sum(dim=-1, keepdim=True)
    return maps.mean(dim=1)


@dataclass(frozen=True)
class AttentionDiversification(Term):
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
    watches: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise HoldfastError(f"weight of ADL must not be negative, got {self.weight}")
        if self.tau <= 0:
            raise HoldfastError(f"tau of ADL must be positive, got {self.tau}")
        if self.variant not in ("released", "paper"):
            raise HoldfastError(f"variant of ADL must be 'released' or 'paper', got {self.variant!r}")

    def loss(self, forward: ForwardPass) -> Loss:
        """The weighted loss of the clean images' attention."""
        loss, figures = self(forward.attention)
        return Loss(self.weight * loss, figures)

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


def adl_term(options: Any, context: Context) -> AttentionDiversification:
    """From a recipe's option ``adl``."""
    return from_options(AttentionDiversification, "adl", options)
