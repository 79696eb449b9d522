"""What a model's input is: what was asked for, else its own configuration, else plain pixels."""

import pytest
import timm
from torch import nn

from holdfast.errors import HoldfastError
from holdfast.evaluation.model_input import check_side, model_input, normalisation


def configured():
    model = timm.create_model("resnet10t", num_classes=3)
    cfg = {
        "input_size": (3, 64, 48),
        "crop_pct": 0.8,
        "interpolation": "bicubic",
        "mean": (0.4,) * 3,
        "std": (0.2,) * 3,
    }
    model.pretrained_cfg = {**model.pretrained_cfg, **cfg}
    return model


def test_a_models_own_configuration_counts_unless_something_else_is_asked_for():
    own = model_input(configured())
    assert (own.size, own.mean, own.std) == ((64, 48), (0.4,) * 3, (0.2,) * 3)
    assert (own.crop_pct, own.interpolation) == (0.8, "bicubic")
    asked = model_input(configured(), size=32, mean=(0, 0, 0), crop_pct=1.0, interpolation="nearest")
    assert (asked.size, asked.mean, asked.std) == ((32, 32), (0.0,) * 3, (0.2,) * 3)
    assert (asked.crop_pct, asked.interpolation) == (1.0, "nearest")


def test_a_module_without_one_gets_pixels_as_they_are_at_the_protocols_size():
    found = model_input(nn.Flatten())
    assert (found.size, found.mean, found.std, found.crop_pct) == (None, (0.0,) * 3, (1.0,) * 3, None)


def test_mean_and_std_of_255_levels_are_divided_and_a_wrong_range_is_noticed():
    mean, std = normalisation((102, 51, 0), (51, 51, 255), pixel_range=255)
    assert mean == pytest.approx((0.4, 0.2, 0))
    assert std == pytest.approx((0.2, 0.2, 1))
    with pytest.raises(HoldfastError, match="give --pixel-range 255"):
        normalisation((102, 51, 0), (51, 51, 255), pixel_range=1)
    with pytest.raises(HoldfastError, match="omit --pixel-range 255"):
        normalisation((0.4, 0.2, 0.1), (0.2, 0.2, 0.2), pixel_range=255)
    with pytest.raises(HoldfastError, match="std positive"):
        normalisation((0.4, 0.2, 0.1), (0.2, 0.0, 0.2), pixel_range=1)


@pytest.mark.parametrize("size", [0, -3, 4097, (32, 0)])
def test_impossible_sizes_are_refused(size):
    with pytest.raises(HoldfastError, match="size must be positive and at most 4096 pixels"):
        check_side(size)
    with pytest.raises(HoldfastError, match="size must be positive"):
        model_input(nn.Flatten(), size=size)
