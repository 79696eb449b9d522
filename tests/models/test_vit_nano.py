"""The plain baseline of nano size."""

import pytest
import timm
import torch

import holdfast  # noqa: F401 (registers the models)


def test_it_is_a_small_vit_without_batch_norm():
    model = timm.create_model("vit_nano", num_classes=10)
    assert sum(parameter.numel() for parameter in model.parameters()) == pytest.approx(0.9e6, rel=0.02)
    assert model.patch_embed.grid_size == (8, 8)
    assert not [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_other_sizes_are_arguments():
    model = timm.create_model("vit_nano", depth=1, img_size=16)
    assert len(model.blocks) == 1
    assert model.patch_embed.grid_size == (4, 4)
