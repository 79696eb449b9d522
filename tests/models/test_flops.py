"""Cost of a model: parameters and multiply-accumulates for one image, counted on the meta device."""

import pytest

from holdfast.models.flops import measure_cost, measure_tora
from holdfast.models.tora import METHODS


def test_sizes_of_vit_b_16_are_those_of_the_slides_and_costs_are_true():
    costs = {method: measure_tora("vit_base_patch16_224", method=method) for method in METHODS}
    millions = {method: round(cost.parameters / 1e6, 1) for method, cost in costs.items()}
    assert millions == {"head-only": 88.1, "single-adapter": 88.3, "adapter-fusion": 111.2, "tora": 111.2}
    plain = measure_cost("vit_base_patch16_224").gmacs
    tokens, dim, depth, width = 197, 768, 12, 48
    adapters = 2 * (depth * 2 * tokens * dim * width)
    full_gates = (depth - 1) * (3 * tokens * dim**2 + 2 * tokens**2 * dim)
    # behind every block: the mean value, and [ACC]'s share of the class token; behind the last, one query
    first_tokens = depth * (2 * dim**2 + 12 * tokens * dim)
    last_gate = dim**2 + 2 * tokens * dim**2 + 2 * tokens * dim
    heads = dim * 1000  # two instead of one
    expected = plain + (adapters + full_gates + first_tokens + last_gate + heads) / 1e9
    assert costs["tora"].gmacs == pytest.approx(expected, rel=1e-6)
    assert costs["head-only"].gmacs == pytest.approx(plain + heads / 1e9, rel=1e-6)
    assert {method: round(cost.gmacs, 1) for method, cost in costs.items()} == {
        "head-only": 17.6,
        "single-adapter": 17.7,
        "adapter-fusion": 23.0,
        "tora": 22.7,
    }
