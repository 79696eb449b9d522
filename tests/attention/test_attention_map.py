"""Maps from queries and keys, against the softmax written out."""

import pytest
import torch

from holdfast.attention.attention_map import AttentionHandle
from holdfast.errors import HoldfastError


def handle(**options):
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, 3, 7, 4, generator=generator) for _ in range(2))
    return AttentionHandle("blocks.0.attn", "token", q, k, 0.5, **options)


def test_maps_are_the_softmax_of_scaled_products_and_rows_are_their_parts():
    found = handle()
    expected = torch.einsum("bhqd,bhkd->bhqk", found.q, found.k).mul(0.5).softmax(-1)
    torch.testing.assert_close(found.maps(), expected)
    torch.testing.assert_close(torch.cat(list(found.rows(3)), dim=2), expected)
    assert [len(part[0, 0]) for part in found.rows(3)] == [3, 3, 1]


def test_heads_are_mixed_then_scaled_then_shifted():
    mixing, multiplier, bias = torch.randn(3, 3), torch.rand(7, 7), torch.randn(3, 7, 7)
    found = handle(mixing=mixing, multiplier=multiplier, bias=bias)
    scores = torch.einsum("bhqd,bhkd->bhqk", found.q, found.k) * 0.5
    expected = (torch.einsum("gh,bhqk->bgqk", mixing, scores) * multiplier + bias).softmax(-1)
    torch.testing.assert_close(found.maps(), expected)
    torch.testing.assert_close(torch.cat(list(found.rows(2)), dim=2), expected)


def test_one_row_for_all_queries_is_kept_and_chunks_are_positive():
    found = handle(bias=torch.randn(1, 7))
    torch.testing.assert_close(torch.cat(list(found.rows(2)), dim=2), found.maps())
    with pytest.raises(HoldfastError, match="chunk must be at least 1, got 0"):
        next(found.rows(0))
