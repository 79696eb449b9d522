"""The two ConvNeXt stages of FAN-Hybrid's patch embedding: timm's blocks, channels-last throughout."""

import torch

from holdfast.models.convnext_trunk import ConvNeXtTrunk, SampleVarianceNorm2d


def test_trunk_norm_divides_by_the_sample_variance():
    norm = SampleVarianceNorm2d(16, eps=1e-6)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    x = torch.randn(2, 16, 3, 4)
    variance, mean = torch.var_mean(x, dim=1, keepdim=True)  # unbiased
    expected = (x - mean) / (variance + 1e-6).sqrt() * norm.weight[:, None, None] + norm.bias[:, None, None]
    torch.testing.assert_close(norm(x), expected)


def test_trunk_keeps_channels_last_from_end_to_end():
    maps = ConvNeXtTrunk()(torch.randn(2, 3, 32, 64))
    assert [tuple(m.shape) for m in maps] == [(2, 128, 8, 16), (2, 256, 4, 8)]
    assert all(m.is_contiguous(memory_format=torch.channels_last) for m in maps)


def test_trunk_computes_the_same_with_and_without_gradients():
    trunk = ConvNeXtTrunk(depths=(1, 1))
    torch.nn.init.ones_(trunk.stages[0].blocks[0].gamma)
    images = torch.randn(3, 3, 32, 64)
    with torch.no_grad():
        without = trunk(images)
    for a, b in zip(trunk(images), without, strict=True):
        torch.testing.assert_close(a, b)
        assert b.is_contiguous(memory_format=torch.channels_last)
