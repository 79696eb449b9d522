"""Objectives by name, with the options of a recipe and the values of the loop that they take."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from holdfast.errors import HoldfastError
from holdfast.methods import objective
from holdfast.methods.objective import CrossEntropy, Loss, build_objective, detection_losses


@pytest.fixture
def weighted(monkeypatch):
    def build(task_loss, *, weight: float = 2.0):
        return lambda model, images, targets: Loss(weight * task_loss(model(images), targets))

    for name in ("OBJECTIVES", "OBJECTIVE_LINES"):
        monkeypatch.setattr(objective, name, dict(getattr(objective, name)))
    objective.register_objective("weighted", build, "a weighted loss")


def batch():
    torch.manual_seed(0)
    return nn.Linear(4, 3), torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])


def test_cross_entropy_takes_hard_and_soft_targets_alike():
    model, images, targets = batch()
    soft = F.one_hot(targets, 3).float()
    loss = CrossEntropy()(model, images, targets)
    torch.testing.assert_close(loss.total, -(soft * model(images).log_softmax(1)).sum(1).mean())
    torch.testing.assert_close(loss.total, CrossEntropy()(model, images, soft).total)
    assert not loss.parts["cross_entropy"].requires_grad


def test_an_objective_gets_its_options_and_what_it_takes_of_the_loop(weighted):
    model, images, targets = batch()
    context = {"task_loss": F.cross_entropy, "mean": (0.5,)}
    built = build_objective("weighted", {"weight": 3.0}, context)
    expected = 3 * F.cross_entropy(model(images), targets)
    torch.testing.assert_close(built(model, images, targets).total, expected)


def test_unknown_names_options_and_missing_values_are_one_sentence(weighted):
    with pytest.raises(HoldfastError, match="unknown objective 'weighed'; did you mean 'weighted'"):
        build_objective("weighed", {})
    with pytest.raises(HoldfastError, match="wieght"):
        build_objective("weighted", {"wieght": 3.0}, {"task_loss": F.cross_entropy})
    with pytest.raises(HoldfastError, match="objective 'weighted' needs task_loss"):
        build_objective("weighted", {})


def test_the_losses_of_a_detector_are_summed():
    class Detector(nn.Module):
        def forward(self, images, targets):
            return {"boxes": torch.tensor(1.0), "classes": torch.tensor(2.5)}

    loss = detection_losses(Detector(), [], [])
    assert loss.total == 3.5
    assert set(loss.parts) == {"boxes", "classes"}
