"""Noise decay, significant eigenvalues and grouping against brute force and known cases."""

import pytest
import timm
import torch
from torch import nn

import holdfast  # noqa: F401 - registers our models
from holdfast.analysis.token_features import TokenLayout, default_modules, outputs_of
from holdfast.errors import HoldfastError


def test_maps_become_tokens_row_by_row():
    features = torch.arange(24).reshape(1, 2, 3, 4)
    tokens = TokenLayout(grid=(3, 4)).tokens(features)  # B C H W
    assert tokens[0, 5].tolist() == features[0, :, 1, 1].tolist()
    tokens = TokenLayout(channels_last=True, grid=(2, 3)).tokens(features)  # B H W C
    assert tokens[0, 4].tolist() == features[0, 1, 1].tolist()


def test_sequences_lose_their_prefix_and_stand_row_by_row():
    features = torch.arange(5).reshape(1, 5, 1)
    layout = TokenLayout(prefix=1, grid=(2, 2), order=torch.tensor([3, 0, 2, 1]))
    assert layout.tokens(features)[0, :, 0].tolist() == [2, 4, 3, 1]


def test_outputs_are_those_of_the_modules_and_hooks_go_away():
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))
    x = torch.randn(5, 3)
    with outputs_of(model, ["0", "1.0"]) as seen:
        model(x)
    assert torch.equal(seen["0"], model[0](x))
    assert torch.equal(seen["1.0"], model[0](x).relu())
    assert not any(module._forward_hooks for module in model.modules())
    with (
        pytest.raises(HoldfastError, match=r"modules must name parts of the model, got '1\.5'"),
        outputs_of(model, ["1.5"]),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "first", "last", "count"),
    [
        ("fan_nano", "blocks.0", "blocks.5", 6),
        ("vit_nano", "blocks.0", "blocks.7", 8),
        ("resnet26", "act1", "layer4.1", 9),
        ("convnext_atto", "stages.0.blocks.0", "stages.3.blocks.1", 12),
    ],
)
def test_blocks_are_found_in_attention_models_and_convolutional_ones(name, first, last, count):
    modules = default_modules(timm.create_model(name))
    assert (modules[0], modules[-1], len(modules)) == (first, last, count)


def test_a_home_made_network_is_measured_at_its_children():
    assert default_modules(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())) == ["0", "1"]


# ---------------------------------------------------------------------------------------------- grouping
