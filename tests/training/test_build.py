"""Builds a training run from a recipe: data, model, optimizer and objective; all errors come before the first step."""

from dataclasses import replace

import pytest
import torch

from holdfast.errors import HoldfastError
from holdfast.training.build import build_optimizer, build_schedule
from holdfast.training.initialize import start_model, train_mode
from holdfast.training.recipe import ModelRecipe, OptimizerRecipe, ScheduleRecipe


def test_frozen_parts_stay_and_their_statistics_too(tmp_path):
    model = start_model(ModelRecipe(name="fan_nano", frozen=["patch_embed", "blocks.0"]), classes=10, size=None)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    train_mode(model)
    optimizer = build_optimizer(model, OptimizerRecipe(), global_batch=8)
    model(torch.randn(8, 3, 32, 32)).square().mean().backward()
    optimizer.step()
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert changed
    assert not [key for key in changed if key.startswith(("patch_embed.", "blocks.0."))]


def test_layers_below_learn_more_slowly():
    model = start_model(ModelRecipe(name="vit_nano"), classes=10, size=None)
    optimizer = build_optimizer(model, OptimizerRecipe(layer_decay=0.5), global_batch=8)
    scale = {id(p): group["lr_scale"] for group in optimizer.param_groups for p in group["params"]}
    assert scale[id(model.head.weight)] == 1
    assert scale[id(model.patch_embed.proj.weight)] < scale[id(model.blocks[0].attn.qkv.weight)] < 0.5


@pytest.mark.parametrize("groups", ["timm", "segmentation"])
@pytest.mark.parametrize(
    "schedule", [ScheduleRecipe(warmup_epochs=0, min_lr=0), ScheduleRecipe(shape="poly", warmup_steps=0)]
)
def test_new_parts_learn_faster_in_every_layer(groups, schedule):
    model = start_model(ModelRecipe(name="tap_vit_small_patch14_dinov2", kwargs={"depth": 2}), classes=10, size=28)
    without = OptimizerRecipe(lr=1e-3, groups=groups, layer_decay=0.5 if groups == "timm" else None)
    slow, fast = (
        rates_halfway(model, recipe, schedule)
        for recipe in (without, replace(without, lr_factors={"dilation_predictor": 20.0}))
    )
    new = [name for name in slow if "dilation_predictor" in name]
    assert len(new) == 8
    assert fast == pytest.approx(slow | dict.fromkeys(new, 20 * 1e-3 / 2))


def rates_halfway(model, recipe, schedule):
    """The learning rate of every parameter in the middle of a training, and that none was lost."""
    optimizer = build_optimizer(model, recipe, global_batch=8)
    build_schedule(optimizer, schedule, epochs=2, steps=5)[0](5)
    names = {id(value): name for name, value in model.named_parameters()}
    rates = {names[id(value)]: group["lr"] for group in optimizer.param_groups for value in group["params"]}
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(rates) == len(names)
    return rates


def test_a_factor_for_a_part_that_is_not_there_is_refused():
    model = start_model(ModelRecipe(name="vit_nano"), classes=10, size=None)
    with pytest.raises(HoldfastError, match="must name modules of the model, which has no 'adapter'"):
        build_optimizer(model, OptimizerRecipe(lr_factors={"adapter": 2.0}), global_batch=8)


def test_the_learning_rate_falls_to_a_tenth_after_the_epochs_named():
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=1e-4)
    recipe = ScheduleRecipe(warmup_epochs=0.5, warmup_lr=1e-7, drops=[2, 3])
    schedule, epochs = build_schedule(optimizer, recipe, epochs=4, steps=10)
    rates = []
    for step in range(10 * epochs):
        schedule(step)
        rates.append(optimizer.param_groups[0]["lr"])
    assert epochs == 4
    assert rates[0] == pytest.approx(1e-7)
    assert rates[5:19] == pytest.approx([1e-4] * 14)  # timm lets it fall with the last step of an epoch
    assert rates[20:29] == pytest.approx([1e-5] * 9)
    assert rates[30:] == pytest.approx([1e-6] * 10)
