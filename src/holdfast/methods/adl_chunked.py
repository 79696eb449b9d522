"""Chunked ADL: the cosines of adl.py for a chunk of attention rows at a time, for many tokens.

The attention of a chunk is computed, used and freed, and recomputed in the backward pass.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from holdfast.attention import AttentionHandle


class RowRule(Protocol):
    """The equations of adl.py for some rows of attention."""

    @property
    def threshold(self) -> float:
        """Attention below this value is set to 0."""
        ...

    @property
    def variant(self) -> str:
        """The form of the loss, ``released`` or ``paper``."""
        ...

    def column_sums(self, handle: AttentionHandle, rows: slice) -> Tensor:
        """The attention each token receives from these rows, (B, N)."""
        ...

    def mean_row(self, mean: Tensor) -> Tensor:
        """The row that all rows are compared with, from the mean of the column sums."""
        ...

    def cosines(self, handle: AttentionHandle, rows: slice, mean: Tensor) -> Tensor:
        """Cosine similarities of these rows with the mean row, (B, rows)."""
        ...


class ChunkedCosines(torch.autograd.Function):
    """Cosines of all rows with the mean row, (B, N), a chunk of rows at a time; backward recomputes the attention.

    No small tensor outlives a chunk: kept between large temporary maps, it would keep the allocator from reusing their
    memory, which would then grow with the square of the number of tokens after all.
    """

    @staticmethod
    def forward(ctx: Any, scale: float, prefix: int, rule: RowRule, chunk: int, *ingredients: Any) -> Tensor:
        """Two passes over the rows: first their mean, then the cosine of each with it."""
        handle = _handle(scale, prefix, ingredients)
        batch, tokens = handle.q.shape[0], handle.q.shape[-2] - handle.prefix
        mean, cosines = handle.q.new_zeros(batch, handle.k.shape[-2] - handle.prefix), handle.q.new_zeros(batch, tokens)
        for rows in _chunks(handle, chunk):
            mean += rule.column_sums(handle, rows)
        mean = rule.mean_row(mean / tokens)
        for rows in _chunks(handle, chunk):
            cosines[:, rows.start - handle.prefix : rows.stop - handle.prefix] = rule.cosines(handle, rows, mean)
        ctx.save_for_backward(mean, *ingredients)
        ctx.call = scale, prefix, rule, chunk
        return cosines

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Two passes over the rows: through the cosines, then through the mean row."""
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
                add(rule.cosines(handle, rows, mean), weights, [*leaves, mean])
            of_sums = totals[-1] / (handle.q.shape[-2] - prefix)
            if rule.variant == "released":  # the mean row was thresholded, and the indicator has no gradient
                of_sums = of_sums * (mean.detach() > rule.threshold)
            for rows in _chunks(handle, chunk):
                add(rule.column_sums(handle, rows), of_sums, leaves)
        parts = iter(totals[:-1])
        return (None, None, None, None, *(None if tensor is None else next(parts) for tensor in ingredients))


def _handle(scale: float, prefix: int, ingredients: Sequence[Any]) -> AttentionHandle:
    q, k, multiplier, bias = ingredients
    return AttentionHandle("", "token", q, k, scale, prefix=prefix, multiplier=multiplier, bias=bias)


def _chunks(handle: AttentionHandle, chunk: int) -> Iterator[slice]:
    stop = handle.q.shape[-2]
    for start in range(handle.prefix, stop, chunk):
        yield slice(start, min(start + chunk, stop))
