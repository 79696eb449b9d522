"""A model of [0,1] images normalises inside and refuses everything else."""

import pytest
import timm
import torch
from torch import nn

from holdfast import HoldfastError
from holdfast.attacks import PixelModel, from_pixels


def test_normalisation_comes_from_the_models_data_configuration():
    model = timm.create_model("vit_nano").eval()
    images = torch.rand(2, 3, 32, 32)
    mean, std = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    torch.testing.assert_close(from_pixels(model)(images), model((images - mean) / std))
    own = from_pixels(model, mean=(0.5, 0.5, 0.5), std=(1.0, 1.0, 1.0))
    torch.testing.assert_close(own(images), model(images - 0.5))


def test_the_wrapper_keeps_the_models_mode_and_its_keys():
    model = timm.create_model("vit_nano").eval()
    wrapped = from_pixels(model)
    assert not wrapped.training
    assert set(wrapped.state_dict()) == {f"model.{key}" for key in model.state_dict()}


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        (torch.full((1, 3, 4, 4), 1.1), "got values from 1.1 to 1.1"),
        (torch.full((1, 3, 4, 4), -0.01), r"images must lie in \[0, 1\]"),
        (torch.full((1, 3, 4, 4), torch.inf), r"images must lie in \[0, 1\]"),
        (torch.zeros(3, 4, 4), r"of shape \(batch, channels, height, width\)"),
        (torch.zeros(1, 3, 4, 4, dtype=torch.uint8), "got torch.uint8"),
    ],
)
def test_images_outside_the_unit_range_are_refused(images, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        PixelModel(nn.Flatten(), mean=(0, 0, 0), std=(1, 1, 1))(images)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: PixelModel(nn.Flatten(), mean=(0.0,), std=(1.0, 1.0)), "one value per channel"),
        (lambda: PixelModel(nn.Flatten(), mean=(0.0,), std=(0.0,)), "std positive"),
        (lambda: from_pixels(timm.create_model("vit_nano"), crop=3), "takes mean and std, got crop"),
    ],
)
def test_bad_statistics_are_refused(call, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        call()
