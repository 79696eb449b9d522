"""Attention of one query and attention received by each token as maps over the image; downsampled N × N maps."""

import pytest
import timm
import torch

from holdfast.analysis.query_maps import place_of, query_map, small_map
from holdfast.attention import watch


def test_a_swin_querys_window_lies_where_the_image_has_it():
    """In a shifted block, too: a query's attention changes with the tokens of its lit window, and with no others."""
    model = timm.create_model("swin_tiny_patch4_window7_224", img_size=56, depths=(2,), num_heads=(3,), num_classes=2)
    block = model.eval().layers[0].blocks[1]
    assert block.shift_size == (3, 3)
    x = torch.randn(1, 14, 14, 96)

    def looked_at(tokens):
        with torch.no_grad(), watch(model) as inside:
            block(tokens)
        (handle,) = inside.attention
        place = place_of(handle, (0.5, 0.5))
        assert (place.row, place.column) == (7, 7)
        return query_map(handle, place)[0]

    first = looked_at(x)
    assert first.sum() == pytest.approx(1, abs=1e-5)
    lit = first > 0
    assert lit.sum() == 49
    rows, columns = torch.nonzero(lit, as_tuple=True)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (3, 9, 3, 9)
    outside, inside = x.clone(), x.clone()
    outside[0, ~lit] += torch.randn(96)
    inside[0, 3, 3] += 5 * torch.randn(96)
    assert torch.equal(looked_at(outside), first)
    assert (looked_at(inside) - first)[3, 3].abs() > 1e-5


def test_long_maps_are_averaged_down_to_a_picture():
    from tests.analysis.handles import random_handle

    handle = random_handle(batch=1, heads=2, tokens=12)
    small = small_map(handle, most=4)
    expected = handle.maps().mean(1).reshape(1, 4, 3, 4, 3).mean(dim=(2, 4))
    assert torch.allclose(small, expected, atol=1e-6)
    assert small_map(handle, most=4, average=False).shape == (1, 2, 4, 4)


def test_a_pooled_query_of_hiera_looks_at_its_mask_unit():
    model = timm.create_model("hiera_tiny_224", img_size=64, embed_dim=16, stages=(1, 1, 1, 1), num_classes=2).eval()
    with torch.no_grad(), watch(model) as inside:
        model(torch.randn(1, 3, 64, 64))
    handle = inside.attention[1]  # 8 × 8 queries over 16 × 16 tokens, in four mask units
    place = place_of(handle, (0.5, 0.5))
    assert (place.row, place.column, place.grid) == (4, 4, (8, 8))
    looked_at = query_map(handle, place)[0]
    assert looked_at.sum() == pytest.approx(1, abs=1e-5)
    rows, columns = torch.nonzero(looked_at, as_tuple=True)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (8, 15, 8, 15)
    whole = inside.attention[3]  # 2 × 2 queries over 4 × 4 tokens of the whole image
    place = place_of(whole, (0.99, 0.0))
    assert (whole.kind, place.row, place.column, place.grid) == ("token", 1, 0, (2, 2))
    assert query_map(whole, place)[0].flatten() == pytest.approx(whole.maps()[0, :, 2].mean(0), abs=1e-6)
