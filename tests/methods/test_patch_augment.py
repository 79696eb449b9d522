"""Patch-wise augmentation (RVT): crops, noise and flips for each patch of a batch independently."""

import copy

import pytest
import timm
import torch
from torch.nn import functional as F

from holdfast.methods.afat import FeatureAlignment
from holdfast.methods.patch_augment import PatchAugmentation, patch_augment, resized_pixel_crops
from tests.methods.test_robust_training import (
    MEAN,
    STD,
    afat,
    batch,
    build,
)


def test_released_patch_augmentation_leaves_the_gradients_of_plain_cross_entropy():
    model = timm.create_model("fan_nano").train()
    images, targets = batch()
    gradients = {}
    for name, terms in {"plain": [], "no-op": [PatchAugmentation(patch_size=4, discard_gradient=True)]}.items():
        model.zero_grad()
        build(*terms)(model, images, targets).total.backward()
        gradients[name] = torch.cat([p.grad.flatten() for p in model.parameters()])
    torch.testing.assert_close(gradients["plain"], gradients["no-op"])


def test_the_released_augmented_pass_moves_batch_norm_first_and_with_afat_in_both_halves():
    images, targets = batch()
    model = timm.create_model("fan_nano").train()
    other, player = copy.deepcopy(model), afat(model)
    reference = FeatureAlignment(copy.deepcopy(player.corruptor), player.settings, mean=MEAN, std=STD)
    torch.manual_seed(5)
    build(PatchAugmentation(patch_size=4, discard_gradient=True), player)(model, images, targets)
    torch.manual_seed(5)
    augmented = patch_augment(images, patch_size=4, low=-1.0, high=1.0)
    for seen in (augmented, images):
        other(torch.cat([reference.corrupt(seen), seen]))
    for name, buffer in model.named_buffers():
        torch.testing.assert_close(buffer, other.get_buffer(name))
    assert {int(b) for name, b in model.named_buffers() if name.endswith("num_batches_tracked")} == {2}


def changed_patches(augmented: torch.Tensor, images: torch.Tensor, size: int) -> torch.Tensor:
    return (augmented != images).any(dim=1).unfold(1, size, size).unfold(2, size, size).flatten(3).any(-1)


@pytest.mark.parametrize(("crops", "share"), [("per-patch", 1 - 0.7**3), ("released", 1 - 0.7**2)])
def test_patch_augmentation_changes_whole_patches_only_and_stays_in_range(crops, share):
    """Patches of 8: the released crop has 7 or 8 pixels, and 7 (a change) where less than 88 % of the area is kept."""
    images = torch.rand(4, 3, 32, 48)
    options = {"patch_size": 8, "crops": crops, "low": 0.0, "high": 1.0}
    augmented = [patch_augment(images, probability=0.3, **options) for _ in range(40)]
    shares = torch.tensor([changed_patches(a, images, 8).float().mean() for a in augmented])
    uncropped = shares if crops == "per-patch" else shares[shares < 0.55]
    assert uncropped.mean() == pytest.approx(share, abs=0.05)
    assert min(a.min() for a in augmented) >= 0
    assert max(a.max() for a in augmented) <= 1
    torch.testing.assert_close(patch_augment(images, probability=0.0, **options), images, atol=0, rtol=0)


def test_the_released_crop_tosses_one_coin_for_the_batch_and_takes_15_or_16_pixels():
    """Of 0.85–1 of 256 pixels, a side rounds to 15 below 15.5² / 256: 59 % of the crops, of which there are four."""
    patches = torch.rand(600, 3, 16, 16)
    crops = resized_pixel_crops(patches)
    changed = (crops != patches).flatten(1).any(dim=1)
    assert changed.float().mean() == pytest.approx((15.5**2 / 256 - 0.85) / 0.15, abs=0.06)
    corners = [(y, x) for y in (0, 1) for x in (0, 1)]
    candidates = torch.stack(
        [
            F.interpolate(patches[..., y : y + 15, x : x + 15], 16, mode="bilinear", align_corners=True)
            for y, x in corners
        ]
    )
    distances = (candidates - crops).abs().flatten(2).amax(dim=2)[:, changed]
    assert distances.amin(dim=0).max() < 1e-5
    assert distances.argmin(dim=0).bincount(minlength=4).min() > 0.15 * changed.sum()

    images = torch.rand(4, 3, 64, 64)
    shares = []
    for _ in range(300):
        augmented = patch_augment(images, probability=0.1, low=0.0, high=1.0)
        shares.append(changed_patches(augmented, images, 16).float().mean().item())
    cropped = [share for share in shares if share > 0.45]
    assert 0.05 < len(cropped) / 300 < 0.16  # a tenth of the calls
    assert sum(cropped) / len(cropped) == pytest.approx(1 - 0.41 * 0.9**2, abs=0.04)
    uncropped = [share for share in shares if share <= 0.45]
    assert sum(uncropped) / len(uncropped) == pytest.approx(0.19, abs=0.02)
