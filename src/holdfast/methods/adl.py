"""Attention diversification loss (ADL): keeps tokens from all attending to the same few (Guo et al., ICCV 2023).

`layer_diversification` is a pure function of an attention handle; `AttentionDiversification` is the loss term.
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
CHUNK = 64  # rows computed at a time in the chunked form
CHUNK_FROM = 1024  # tokens from which the chunked form is used: whole maps of a layer then take 4 MB per head and image


def layer_diversification(
    handle: AttentionHandle, *, tau: float = 2.0, variant: Variant = "released", chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """Mean cosine similarity of the attention rows with the mean row, above τ/N; and the fraction of active rows.

    TAP+ADL, Eq. 1–2. ``released`` thresholds the mean of the raw rows with >, as the code does, so it is zero until
    some token receives more than τ/N on average; ``paper`` takes the mean of the thresholded rows, with ≥. Heads are
    averaged first. Class tokens are dropped and rows renormalised, and windows count as images (ours: no code was
    released for those).

    With ``chunk``, attention is computed for that many rows at a time and recomputed in the backward pass: the values
    and gradients are the same, and memory grows linearly with the number of tokens.
    """
    tokens = handle.q.shape[-2] - handle.prefix
    # τ is relative to uniform attention, 1/N: the threshold keeps its meaning for any number of tokens
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
    """Threshold of the attention, and similarity of the thresholded rows."""

    threshold: float
    variant: Variant

    def above(self, rows: Tensor) -> Tensor:
        """The rows with attention below the threshold set to 0."""
        return rows * (rows > self.threshold if self.variant == "released" else rows >= self.threshold)

    def column_sums(self, handle: AttentionHandle, rows: slice) -> Tensor:
        """The attention each token receives from these rows, (B, N)."""
        attention = _rows(handle, rows)
        return (attention if self.variant == "released" else self.above(attention)).sum(dim=1)

    def mean_row(self, mean: Tensor) -> Tensor:
        """The mean row of TAP+ADL Eq. 2, thresholded; the paper's form has thresholded the rows already."""
        return self.above(mean) if self.variant == "released" else mean

    def cosines(self, handle: AttentionHandle, rows: slice, mean: Tensor) -> Tensor:
        """Cosine similarities of these rows with the mean row, (B, rows)."""
        return F.cosine_similarity(mean.unsqueeze(1), self.above(_rows(handle, rows)), dim=-1, eps=1e-8)


def _rows(handle: AttentionHandle, rows: slice) -> Tensor:
    """Attention of some patch tokens to all patch tokens, heads averaged: (B, rows, N)."""
    maps = handle.rows_of(rows)[..., handle.prefix :]
    # without the class token's column rows no longer sum to 1, and τ/N would cut rows that attend to it more
    if handle.prefix:
        maps = maps / maps.sum(dim=-1, keepdim=True)
    return maps.mean(dim=1)


@dataclass(frozen=True)
class AttentionDiversification(Term):
    """ADL: the mean loss over all blocks with token or window attention (divided by L + 1e-6, as released).

    Attributes:
        weight: factor in the objective.
        tau: τ; attention below τ/N is set to 0.
        variant: ``released`` or ``paper``; see ``layer_diversification``.
        chunk: rows computed at a time; None decides by the number of tokens, 0 never chunks.
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
        loss, logged = self(forward.attention)
        return Loss(self.weight * loss, logged)

    def __call__(self, attention: Sequence[AttentionHandle]) -> tuple[Tensor, dict[str, Tensor]]:
        """The unweighted loss of a forward pass, and values for the log."""
        handles = [handle for handle in attention if handle.kind in ("token", "window")]
        if not handles:
            raise HoldfastError("ADL needs a model with token or window attention, and this one has none: omit adl")
        layers = [
            layer_diversification(handle, tau=self.tau, variant=self.variant, chunk=self._chunk(handle))
            for handle in handles
        ]
        loss = torch.stack([layer for layer, _ in layers]).sum() / (len(layers) + 1e-6)
        active = torch.stack([fraction for _, fraction in layers]).mean()
        return loss, {"adl": loss.detach(), "adl_active_rows": active}

    def _chunk(self, handle: AttentionHandle) -> int | None:
        if self.chunk is not None:
            return self.chunk or None
        return CHUNK if handle.q.shape[-2] >= CHUNK_FROM else None


def adl_term(options: Any, context: Context) -> AttentionDiversification:
    """Build ADL from a recipe's option ``adl``."""
    return from_options(AttentionDiversification, "adl", options)
