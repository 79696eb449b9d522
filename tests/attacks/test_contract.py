"""What every preset keeps to, whatever it does."""

import copy
import json
from dataclasses import replace

import pytest
import timm
import torch

import holdfast
from holdfast.attacks import (
    PRESETS,
    AttentionOcclusion,
    AutoAttack,
    GradientAttack,
    LearnedOcclusion,
    Occlusion,
    PatchFool,
    PixelModel,
    fit_corruptor,
    from_pixels,
)
from tests.attacks.test_projected_gradient_descent import assert_same, state_of

CHEAP = {  # the same attack on a 32-px network, in a moment
    GradientAttack: {"steps": 1},
    PatchFool: {"steps": 1, "pixels": None},
    Occlusion: {"patch_size": 4, "masks": 2},
    AttentionOcclusion: {},
    AutoAttack: {"iterations": 1, "queries": 2, "targets": 1},
}


def network() -> PixelModel:
    return from_pixels(timm.create_model("fan_nano", embed_dim=32, num_heads=2, depth=5))


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_returns_scored_images_and_a_record_and_changes_nothing(name):
    attack = replace(PRESETS[name], **CHEAP[type(PRESETS[name])])
    model, images, labels = network(), torch.rand(3, 3, 32, 32), torch.tensor([0, 1, 9])
    before, given = state_of(model), copy.deepcopy((images, labels))
    result = attack(model, images, labels, seed=1)
    assert_same(before, state_of(model))
    assert torch.equal(images, given[0])
    assert torch.equal(labels, given[1])
    assert result.images.shape == images.shape
    assert not result.images.requires_grad
    assert result.images.min() >= 0
    assert result.images.max() <= 1
    with torch.no_grad():
        assert torch.equal(result.predictions.reshape(-1, 3)[-1], model.eval()(result.images).argmax(dim=1))
    record = json.loads(json.dumps(result.record))
    assert record["seed"] == 1
    assert record["attack"] in ("gradient", "patch-fool", "occlusion", "autoattack")


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_repeats_itself(name):
    attack = replace(PRESETS[name], **CHEAP[type(PRESETS[name])])
    model, images, labels = network(), torch.rand(2, 3, 32, 32), torch.tensor([3, 4])
    first = attack(model, images, labels, seed=2)
    torch.manual_seed(99)
    assert torch.equal(first.images, attack(model, images, labels, seed=2).images)


@pytest.mark.parametrize(
    "surroundings", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)]
)
@pytest.mark.parametrize("name", ["pgd5", "patch-fool", "occlusion-random", "occlusion-attention", "autoattack-cifar"])
def test_a_preset_runs_without_gradients_and_under_autocast(name, surroundings):
    attack, model = replace(PRESETS[name], **CHEAP[type(PRESETS[name])]), network()
    with surroundings():
        result = attack(model, torch.rand(2, 3, 32, 32), torch.tensor([3, 4]))
    assert result.images.dtype == torch.float32
    assert torch.isfinite(result.images).all()


@pytest.mark.parametrize(
    "surroundings", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)]
)
@pytest.mark.parametrize("objective", ["cross-entropy", "alignment"])
def test_a_corruptor_is_fitted_without_gradients_and_under_autocast(objective, surroundings):
    model = network()
    with surroundings():
        batch = torch.rand(2, 3, 32, 32), torch.tensor([3, 4])
        fitted = fit_corruptor(LearnedOcclusion(patch_size=4, objective=objective, epochs=1), model, [batch])
    assert fitted.objective[0] > 0


@pytest.mark.parametrize("name", ["fan_nano_hybrid", "rvt_nano", "vit_nano"])
@pytest.mark.parametrize("tap", [False, True])
def test_patch_fool_reads_the_attention_of_our_token_models(name, tap):
    model = timm.create_model(name)
    if tap:
        model = holdfast.add_tap(model)
    result = PatchFool(steps=1)(from_pixels(model), torch.rand(2, 3, 32, 32), torch.tensor([0, 1]))
    assert result.record["form"] == "attention"
