"""Augmentation for classification: timm's and torchvision's transforms, built from a recipe."""

import pytest
import torch

from holdfast.training.augment.classification import batch_mixer, soft_targets, training_transform
from holdfast.training.recipe import AugmentRecipe
from holdfast.training.seeding import seeded
from tests.training.test_loader import (
    DIGITS,
)


def test_smoothing_spreads_its_share_over_all_classes():
    torch.testing.assert_close(
        soft_targets(torch.tensor([1]), classes=4, smoothing=0.2), torch.tensor([[0.05, 0.85, 0.05, 0.05]])
    )


def test_erasing_comes_before_or_after_mixing():
    """Before: a rectangle of noise survives mixing diluted. After: it has its full strength on the mixed image."""
    black, labels = torch.zeros(64, 3, 16, 16), torch.arange(64) % 2
    after = AugmentRecipe(erasing=1.0, erasing_order="after", mixup=0.8, cutmix=0.0)
    with seeded(0):
        images, targets = batch_mixer(after, classes=2)(black.clone(), labels, 0)
    assert images.flatten(1).any(dim=1).all()  # every image has its rectangle
    assert images[images != 0].std() == pytest.approx(1, abs=0.05)  # standard normal noise, unmixed
    torch.testing.assert_close(targets.sum(dim=1), torch.ones(64))

    before = AugmentRecipe(erasing=1.0, mixup=0.8, cutmix=0.0)
    assert not batch_mixer(before, classes=2)(black.clone(), labels, 0)[0].any()
    orders = {"before": before, "after": after}
    erases = {order: "RandomErasing" in str(training_transform(recipe, DIGITS)) for order, recipe in orders.items()}
    assert erases == {"before": True, "after": False}
