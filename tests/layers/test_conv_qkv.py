"""Convolutional projections act on the map that the tokens are of."""

import torch

from holdfast.layers.conv_qkv import fan_conv, rvt_conv_qkv


def test_tokens_are_convolved_as_the_map_they_are():
    torch.manual_seed(0)
    layers, tokens = rvt_conv_qkv(8), torch.randn(2, 12, 8)
    found = layers(tokens, 3, 4)
    assert found.shape == (2, 12, 24)
    grid = tokens.reshape(2, 3, 4, 8).permute(0, 3, 1, 2)
    for layer in layers:
        grid = layer(grid)
    torch.testing.assert_close(found, grid.permute(0, 2, 3, 1).reshape(2, 12, 24))


def test_a_token_sees_its_eight_neighbours_only():
    torch.manual_seed(0)
    layers, tokens = fan_conv(8), torch.zeros(1, 25, 8, requires_grad=True)
    layers[0].bias.data.fill_(1.0)  # so that no unit is off
    layers(tokens, 5, 5)[0, 12].sum().backward()
    seen = tokens.grad[0].abs().sum(-1).reshape(5, 5) > 0
    assert seen[1:4, 1:4].all()
    assert seen.sum() == 9
