"""AFAT's two equations, against the published values. How the players move is in test_robust.py."""

import json
from pathlib import Path

import numpy as np
import pytest
import timm
import torch

import holdfast
from holdfast.methods.afat import alignment, occlude
from holdfast.models.corruption_model import Corruptor
from tests import golden_weights

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "methods.json").read_text())
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(-1, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(-1, 1, 1)


def test_alignment_and_the_corruptors_gradient_equal_the_published_ones():
    golden = GOLDEN["alignment"]
    corruptor = golden_weights.fill(Corruptor(), "corruptor.")
    images = golden_weights.images("golden/afat", 2, 224, 224)
    model = golden_weights.fill(timm.create_model(golden["model"])).train()
    noise = torch.from_numpy(np.random.Generator(np.random.Philox(7)).random((2, 3, 224, 224)).astype(np.float32))
    corrupted = occlude(images, corruptor.keep(images), noise, low=-MEAN / STD, high=(1 - MEAN) / STD)
    with holdfast.watch(model) as seen:
        model(torch.cat([corrupted, images]))
    halves = [feature.chunk(2) for feature in seen.features]
    loss, errors = alignment([half[0] for half in halves], [half[1] for half in halves])
    assert loss.item() == pytest.approx(golden["loss"], rel=1e-5)
    assert loss.item() == pytest.approx(sum(errors).item() / (len(errors) + 1e-4))
    fc, conv = torch.autograd.grad(golden["weight"] * loss, [corruptor.fc.weight, corruptor.patch_embed.weight])
    assert fc.norm().item() == pytest.approx(golden["corruptor_fc_grad_l2"], rel=1e-4)
    assert conv.norm().item() == pytest.approx(golden["corruptor_conv_grad_l2"], rel=1e-4)
    assert fc.abs().mean().item() == pytest.approx(golden["corruptor_fc_grad_abs_mean"], rel=1e-4)


def test_occluded_patches_hold_noise_and_all_others_the_image():
    images, noise = torch.rand(2, 3, 8, 12), torch.rand(2, 3, 8, 12)
    keep = (torch.rand(2, 1, 2, 3) > 0.5).float()
    result = occlude(images, keep, noise, low=0.0, high=1.0)
    for b in range(2):
        for row in range(8):
            for column in range(12):
                source = images if keep[b, 0, row // 4, column // 4] else noise
                assert torch.equal(result[b, :, row, column], source[b, :, row, column])


def test_occlusion_is_clamped_to_the_values_of_black_and_white():
    images = torch.full((1, 3, 4, 4), 9.0)
    result = occlude(images, torch.ones(1, 1, 2, 2), images, low=-MEAN / STD, high=(1 - MEAN) / STD)
    torch.testing.assert_close(result, ((1 - MEAN) / STD).expand(1, 3, 4, 4))


def test_features_of_other_blocks_are_refused():
    with pytest.raises(holdfast.HoldfastError, match="the same blocks for both views, got 0 and 0"):
        alignment([], [])
