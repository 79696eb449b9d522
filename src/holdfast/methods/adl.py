"""Attention diversification loss (ADL): tokens should not all attend to the same few (Guo et al., ICCV 2023).

A pure function of attention handles first, the term that objectives use second.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

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
    rule = _Rule(tau / (handle.k.shape[-2] - handle.prefix), variant)
    if chunk and handle.mixing is None:
        ingredients = (handle.q, handle.k, handle.multiplier, handle.bias)
        cosines = _ChunkedCosines.apply(handle.scale, handle.prefix, rule, chunk, *ingredients)
    else:
        every = slice(handle.prefix, None)
        cosines = _cosines(handle, every, rule, rule.mean_row(_column_sums(handle, every, rule) / tokens))
    return cosines.mean(), (cosines.detach() > 0).float().mean()


@dataclass(frozen=True)
class _Rule:
    """What counts as attention."""

    threshold: float
    variant: Variant

    def above(self, rows: Tensor) -> Tensor:
        """Rows without what lies below the threshold."""
        return rows * (rows > self.threshold if self.variant == "released" else rows >= self.threshold)

    def mean_row(self, mean: Tensor) -> Tensor:
        """The mean row; the released form thresholds it now, the paper's form has done so row by row."""
        return self.above(mean) if self.variant == "released" else mean


class _ChunkedCosines(torch.autograd.Function):
    """Cosines of all rows with the mean row, (B, N), a chunk of rows at a time; attention is computed again backward.

    Nothing small outlives a chunk: pieces kept between large temporary maps would keep the allocator from using their
    space again, and memory would grow with the square of the tokens after all.
    """

    @staticmethod
    def forward(ctx: Any, scale: float, prefix: int, rule: _Rule, chunk: int, *ingredients: Any) -> Tensor:
        handle = _handle(scale, prefix, ingredients)
        batch, tokens = handle.q.shape[0], handle.q.shape[-2] - handle.prefix
        mean, cosines = handle.q.new_zeros(batch, handle.k.shape[-2] - handle.prefix), handle.q.new_zeros(batch, tokens)
        for rows in _chunks(handle, chunk):
            mean += _column_sums(handle, rows, rule)
        mean = rule.mean_row(mean / tokens)
        for rows in _chunks(handle, chunk):
            cosines[:, rows.start - handle.prefix : rows.stop - handle.prefix] = _cosines(handle, rows, rule, mean)
        ctx.save_for_backward(mean, *ingredients)
        ctx.call = scale, prefix, rule, chunk
        return cosines

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        scale, prefix, rule, chunk = ctx.call
        mean, *saved = ctx.saved_tensors
        ingredients = [None if tensor is None else tensor.detach().requires_grad_() for tensor in saved]
        leaves = [tensor for tensor in ingredients if tensor is not None]
        handle = _handle(scale, prefix, ingredients)
        mean = mean.requires_grad_()
        totals = [torch.zeros_like(tensor) for tensor in (*leaves, mean)]

        def add(values: Tensor, weights: Tensor, inputs: list[Tensor]) -> None:
            for total, part in zip(
                totals, torch.autograd.grad(values, inputs, weights, allow_unused=True), strict=False
            ):
                if part is not None:
                    total.add_(part)

        with torch.enable_grad():
            for rows in _chunks(handle, chunk):
                weights = gradient[:, rows.start - prefix : rows.stop - prefix]
                add(_cosines(handle, rows, rule, mean), weights, [*leaves, mean])
            of_sums = totals[-1] / (handle.q.shape[-2] - prefix)
            if rule.variant == "released":
                of_sums = of_sums * (mean.detach() > rule.threshold)
            for rows in _chunks(handle, chunk):
                add(_column_sums(handle, rows, rule), of_sums, leaves)
        parts = iter(totals[:-1])
        return (None, None, None, None, *(None if tensor is None else next(parts) for tensor in ingredients))


def _handle(scale: float, prefix: int, ingredients: Sequence[Any]) -> AttentionHandle:
    q, k, multiplier, bias = ingredients
    return AttentionHandle("", "token", q, k, scale, prefix=prefix, multiplier=multiplier, bias=bias)


def _chunks(handle: AttentionHandle, chunk: int) -> Iterator[slice]:
    stop = handle.q.shape[-2]
    for start in range(handle.prefix, stop, chunk):
        yield slice(start, min(start + chunk, stop))


def _rows(handle: AttentionHandle, rows: slice) -> Tensor:
    """Attention of some patch tokens to all patch tokens, heads averaged: (B, rows, N)."""
    maps = handle.rows_of(rows)[..., handle.prefix :]
    if handle.prefix:
        maps = maps / maps.sum(dim=-1, keepdim=True)
    return maps.mean(dim=1)


def _column_sums(handle: AttentionHandle, rows: slice, rule: _Rule) -> Tensor:
    attention = _rows(handle, rows)
    return (attention if rule.variant == "released" else rule.above(attention)).sum(dim=1)


def _cosines(handle: AttentionHandle, rows: slice, rule: _Rule, mean: Tensor) -> Tensor:
    return F.cosine_similarity(mean.unsqueeze(1), rule.above(_rows(handle, rows)), dim=-1, eps=1e-8)


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
