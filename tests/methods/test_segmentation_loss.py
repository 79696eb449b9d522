"""Table 4 of TAP+ADL compares two Cityscapes recipes: both divide their loss by the same number of pixels."""

import pytest
import torch
from torch import nn

from holdfast.errors import HoldfastError
from holdfast.methods import build_objective
from holdfast.tasks import task_named
from holdfast.training.recipe_files import load_recipe


class Pixels(nn.Module):
    """Logits that are the images themselves."""

    def forward(self, images):
        return images


def loss_of(objective) -> float:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, 3, 8, 8, generator=generator)
    labels = torch.randint(0, 3, (2, 8, 8), generator=generator)
    labels[:, :, :4] = 255  # half of every crop is padding
    return float(objective(Pixels(), images, labels).total)


def robust(**options):
    task = task_named("segmentation")
    context = {"model": Pixels(), "size": (8, 8), "mean": (0.0,) * 3, "std": (1.0,) * 3}
    return build_objective("robust", options, context | {"task_loss": task.training.loss, "goal": task.evaluation.goal})


def test_the_robust_objective_divides_by_the_pixels_that_the_recipe_says():
    plain = {divisor: build_objective("pixel_cross_entropy", {"divisor": divisor}) for divisor in ("all", "labelled")}
    assert loss_of(plain["labelled"]) == pytest.approx(2 * loss_of(plain["all"]))
    assert loss_of(robust(divisor="all")) == pytest.approx(loss_of(plain["all"]))
    assert loss_of(robust(divisor="labelled")) == loss_of(robust()) == pytest.approx(loss_of(plain["labelled"]))


def test_table_4s_rows_and_their_baseline_divide_by_all_pixels_as_released():
    for name in ("fan_base_hybrid", "tapadl_fan_base_hybrid"):
        assert load_recipe(f"cityscapes/{name}").objective.options["divisor"] == "all"


def test_another_divisor_is_refused():
    with pytest.raises(HoldfastError, match="must be one of all, labelled or null, got 'some'"):
        robust(divisor="some")


def test_a_divisor_is_refused_where_there_are_no_pixels():
    context = {"model": Pixels(), "size": (8, 8), "mean": (0.0,) * 3, "std": (1.0,) * 3}
    with pytest.raises(HoldfastError, match="divisor of objective 'robust' is for label maps of pixels alone"):
        build_objective("robust", {"divisor": "all"}, context)
