"""Learning-rate schedule and parameter groups of the published segmentation models, as pure functions."""

import json
from pathlib import Path

import pytest
import torch

import holdfast
from holdfast.training.schedules import poly_factor, segmentation_groups

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "segmentation.json").read_text())


@pytest.mark.parametrize(
    ("step", "lr"),
    [
        (0, 6.0000e-11),
        (1, 4.0060e-8),
        (750, 2.9859e-5),
        (1499, 5.9398e-5),
        (1500, 5.9438e-5),
        (80000, 3.0000e-5),
        (159999, 3.75e-10),
    ],
)
def test_the_learning_rate_is_the_published_one(step, lr):
    assert 6e-5 * poly_factor(step, steps=160_000) == pytest.approx(lr, rel=2e-5)


def test_learning_rate_groups_are_the_published_ones():
    golden = GOLDEN["optimizer_groups/fan_base_16_p4_hybrid"]["groups"]
    with torch.device("meta"):
        model = holdfast.segmenter("fan_base_16_p4_hybrid")
    groups = segmentation_groups(model.named_parameters(), lr=6e-5, weight_decay=0.01)
    ours = {
        (round(group["lr"], 9), group["weight_decay"]): [len(group["params"]), sum(p.numel() for p in group["params"])]
        for group in groups
    }
    assert ours[6e-5, 0.01] == golden["lr 6e-05 wd 0.01"]
    assert ours[6e-5, 0.0] == golden["lr 6e-05 wd 0.0"]
    tensors, parameters = golden["lr 6e-04 wd 0.01"]
    assert ours[6e-4, 0.01] == [tensors - 2, parameters - 4883]  # without the unused conv_seg


def test_frozen_weights_are_in_no_group():
    model = holdfast.segmenter("fan_mini_4_p4_hybrid")
    model.backbone.requires_grad_(False)
    (group,) = segmentation_groups(model.named_parameters(), lr=1.0, weight_decay=0.1)
    assert group["lr"] == 10.0
