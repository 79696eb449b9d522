"""AFAT's corruption model occludes what the published one occludes, on any grid."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.models.corruption_model import (
    Corruptor,
    in_pixels,
    keep_straight_through,
    load_corruptor,
    save_corruptor,
    select_lowest,
)
from tests import golden_weights

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "methods.json").read_text())


def golden_corruptor() -> tuple[Corruptor, torch.Tensor]:
    return golden_weights.fill(Corruptor(), "corruptor."), golden_weights.images("golden/afat", 2, 224, 224)


def test_it_has_the_published_keys_and_size():
    shapes = {key: tuple(value.shape) for key, value in Corruptor().state_dict().items()}
    assert shapes == {"patch_embed.weight": (1, 3, 16, 16), "fc.weight": (196, 196)}
    assert sum(parameter.numel() for parameter in Corruptor().parameters()) == 39_184


def test_it_occludes_the_published_patches():
    corruptor, images = golden_corruptor()
    keep = corruptor.keep(images, 0.1).flatten(1)
    assert [(row == 0).nonzero().flatten().tolist() for row in keep] == GOLDEN["corruption_model"]["occluded"]


@pytest.mark.parametrize(("ratio", "occluded"), [(0.05, 10), (0.1, 20), (0.25, 49), (0.5, 98), (0.0, 1), (1.0, 1)])
def test_the_published_ratios_occlude_the_published_numbers_of_patches(ratio, occluded):
    keep = select_lowest(torch.randn(3, 196), ratio)
    assert (keep == 0).sum(dim=1).tolist() == [occluded] * 3


@settings(deadline=None, max_examples=40)
@given(count=st.integers(1, 70), ratio=st.floats(0, 1), seed=st.integers(0, 2**16))
def test_the_threshold_is_the_interpolated_quantile(count, ratio, seed):
    scores = torch.from_numpy(np.random.default_rng(seed).standard_normal((2, count)))
    expected = scores.numpy() > np.quantile(scores.numpy(), ratio % 1, axis=1, keepdims=True)
    # at a quantile that is one of the scores, rounding decides whether that score is above it
    on_a_score = abs((position := (ratio % 1) * (count - 1)) - round(position)) < 1e-6
    wrong = (select_lowest(scores, ratio).numpy().astype(bool) != expected).sum(axis=1)
    assert (wrong <= int(on_a_score)).all()


def test_the_gradient_passes_straight_through_clamped_and_not_gated():
    scores = torch.tensor([[5.0, -7.0, 0.1, 0.2]], requires_grad=True)
    weights = torch.tensor([[0.5, -3.0, 2.0, -0.25]])
    (keep_straight_through(scores, 0.25) * weights).sum().backward()
    assert scores.grad.tolist() == [[0.5, -1.0, 1.0, -0.25]]


@pytest.mark.parametrize(("grid", "patch_size"), [((14, 14), 16), ((8, 8), 4), ((2, 5), 8)])
def test_any_grid_survives_being_saved(tmp_path, grid, patch_size):
    corruptor = Corruptor(grid, patch_size=patch_size)
    images = torch.randn(2, 3, grid[0] * patch_size, grid[1] * patch_size)
    save_corruptor(corruptor, tmp_path / "corruptor.safetensors")
    loaded = load_corruptor(tmp_path / "corruptor.safetensors")
    assert (loaded.grid, loaded.patch_size) == (grid, patch_size)
    assert torch.equal(loaded.keep(images), corruptor.keep(images))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: Corruptor((8, 8), patch_size=4)(torch.rand(1, 3, 64, 64)),
            "images must be 32×32 for a corruptor of 8×8",
        ),
        (lambda: Corruptor((8, 8), patch_size=4)(torch.rand(1, 3, 30, 32)), "divisible by 4, got 30×32"),
        (lambda: Corruptor((0, 8)), "grid and patch_size must be positive"),
        (lambda: select_lowest(torch.rand(1, 4), 1.5), r"ratio must lie in \[0, 1\], got 1.5"),
        (lambda: in_pixels(torch.ones(1, 1, 2, 2), torch.rand(1, 3, 9, 9)), "grid of 2×2"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, sentence):
    with pytest.raises(holdfast.HoldfastError, match=sentence):
        call()


def test_a_file_that_is_no_corruptor_is_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"weight": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(holdfast.HoldfastError, match="must be a file written by save_corruptor"):
        load_corruptor(tmp_path / "other.safetensors")
