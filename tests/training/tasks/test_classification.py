"""Training of classifiers: the loss by hand, and counts that add up over batches."""

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast.training.recipe import Recipe
from holdfast.training.tasks.classification import TRAINING, ImageOnly

LOGITS = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 3.0, 0.0]])


def log_probability(row, label):
    return row[label] - np.log(np.exp(row).sum())


def test_the_loss_is_the_mean_of_minus_log_probabilities():
    rows = LOGITS.numpy().astype(np.float64)
    expected = -np.mean([log_probability(row, label) for row, label in zip(rows, (0, 1, 2), strict=True)])
    assert TRAINING.loss(LOGITS, torch.tensor([0, 1, 2])).item() == pytest.approx(expected)
    soft = torch.tensor([[0.5, 0.5, 0.0]] * 3)
    both = -np.mean([(log_probability(row, 0) + log_probability(row, 1)) / 2 for row in rows])
    assert TRAINING.loss(LOGITS, soft).item() == pytest.approx(both)


def test_counts_of_batches_add_up_to_the_score_of_the_whole():
    targets = torch.tensor([0, 1, 2])
    whole = TRAINING.tally(LOGITS, targets)
    parts = TRAINING.tally(LOGITS[:1], targets[:1]) + TRAINING.tally(LOGITS[1:], targets[1:])
    assert torch.equal(whole, parts + TRAINING.tally(None, None))
    assert TRAINING.validation_scores(whole) == {"top1": pytest.approx(200 / 3)}
    assert TRAINING.validation_scores(TRAINING.tally(None, None)) == {"top1": 0.0}


def test_a_transform_changes_the_image_and_keeps_its_class():
    picture = Image.new("RGB", (4, 4))
    assert ImageOnly(lambda image: image.size)(picture, 7) == ((4, 4), 7)


def test_without_mixing_images_stay_and_targets_are_whole_classes():
    recipe = Recipe().augment
    recipe = type(recipe)(**{**vars(recipe), "mixup": 0.0, "cutmix": 0.0, "smoothing": 0.0})
    images, targets = torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 0])
    mixed, kept = TRAINING.mixer(recipe, classes=3)(images, targets, 0)
    assert torch.equal(mixed, images)
    assert torch.equal(kept, torch.eye(3)[targets])
