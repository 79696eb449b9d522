"""Attention handles whose maps are known."""

import torch

from holdfast.attention import AttentionHandle


def handle_of(maps: torch.Tensor, *, kind="token", grid=None, windows=None) -> AttentionHandle:
    """A handle whose maps are exactly these, (B, h, N, N): scores are their logarithms, through the bias."""
    batch, heads, rows, keys = maps.shape
    zeros = torch.zeros(batch, heads, rows, 1)
    scores = maps.clamp_min(1e-38).log()
    return AttentionHandle(
        "block", kind, zeros, torch.zeros(batch, heads, keys, 1), 1.0, grid=grid, windows=windows, bias=scores
    )


def random_handle(batch=2, heads=3, tokens=12, *, seed=0, **options) -> AttentionHandle:
    generator = torch.Generator().manual_seed(seed)
    return handle_of(torch.randn(batch, heads, tokens, tokens, generator=generator).mul(2).softmax(-1), **options)
