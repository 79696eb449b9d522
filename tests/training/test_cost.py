"""What a recipe costs on GPUs: FLOPs and memory counted on torch's meta device, hours estimated from them."""

import pytest

from holdfast.models.flops import measure_cost
from holdfast.training.cost import forward_passes, recipe_cost
from holdfast.training.recipe_files import load_recipe


def test_the_counted_flops_are_those_of_the_models_and_their_passes():
    cost = recipe_cost(load_recipe("imagenet/rspc_rvt_tiny_plus"), "imagenet")
    gmacs = measure_cost("rvt_tiny_plus").gmacs
    passes = 3 * 2 + 2  # clean and occluded, forward and backward; and both augmented, forward alone
    assert cost.flops == pytest.approx(gmacs * 2e9 * passes * 310 * 1_281_167, rel=0.01)
    assert forward_passes(load_recipe("imagenet/rvt_tiny_plus")) == 4
    assert forward_passes(load_recipe("imagenet/fan_tiny_vit")) == 3
