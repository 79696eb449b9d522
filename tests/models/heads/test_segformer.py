"""SegFormer's head with folded layers equals the layers one after another, as they were published."""

import pytest
import torch
from torch.nn import functional as F

from holdfast.models.heads.segformer import SegFormerHead

SIZES = {
    "every map of its own size": [(8, 8), (4, 4), (2, 2), (1, 1)],
    "two of a size": [(8, 8), (4, 4), (4, 4), (2, 2)],
}


def as_published(head, maps):
    """Each linear layer, then the resizing to the finest map, then one convolution over all, coarsest first."""
    resized = []
    for number, x in enumerate(maps, start=1):
        projected = getattr(head, f"linear_c{number}").proj(x.movedim(1, -1)).movedim(-1, 1)
        resized.append(F.interpolate(projected, size=maps[0].shape[-2:], mode="bilinear", align_corners=False))
    return head.linear_pred(head.linear_fuse(torch.cat(resized[::-1], dim=1)))


@pytest.mark.parametrize("sizes", SIZES)
def test_folded_layers_give_the_published_logits(sizes):
    torch.manual_seed(0)
    head = SegFormerHead([3, 5, 7, 9], 4, width=6).double().eval()
    head.linear_fuse.bn.running_mean.normal_()
    maps = [torch.randn(2, c, *size, dtype=torch.double) for c, size in zip((3, 5, 7, 9), SIZES[sizes], strict=True)]
    torch.testing.assert_close(head(maps), as_published(head, maps))


def test_gradients_reach_every_layer():
    head = SegFormerHead([3, 5], 4, width=6)
    head([torch.randn(2, 3, 4, 4), torch.randn(2, 5, 2, 2)]).square().mean().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in head.parameters())
