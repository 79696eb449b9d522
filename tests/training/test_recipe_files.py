"""Every shipped recipe is complete, says what it costs, builds, and takes two steps at a shrunken size."""

import re

import numpy as np
import pytest

from holdfast.errors import HoldfastError
from holdfast.training.cost import cost_lines
from holdfast.training.global_batch import share_batch
from holdfast.training.loop import train
from holdfast.training.recipe import Recipe
from holdfast.training.recipe_files import RULES, as_values, find_recipe, leaves, load_recipe, recipe_names, to_yaml
from tests.chaos.processes import fork_group
from tests.training.helpers import log_of
from tests.training.shrunken_recipes import pictures, shrunken, train_recipes

RECIPES = recipe_names()


@pytest.fixture(scope="module")
def noise(tmp_path_factory):
    return pictures(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize("name", [name for name in RECIPES if load_recipe(name).model.name != "detector"])
def test_builds_and_takes_two_steps_at_a_shrunken_size(name, noise, tmp_path):
    overrides = shrunken(name, noise, tmp_path)
    assert train(name, out=tmp_path / "run", overrides=overrides, show=False).step == 2
    assert all(np.isfinite(line["loss"]) for line in log_of(tmp_path / "run", "step"))


A_FEW = ("imagenet/rspc_fan_base_hybrid", "cityscapes/tapadl_fan_base_hybrid")


@pytest.mark.parametrize("names", [A_FEW, pytest.param(tuple(RECIPES), marks=pytest.mark.full)], ids=["few", "all"])
def test_two_processes_take_steps_of_the_scaled_global_batch_and_end_with_the_same_weights(names, tmp_path):
    ends = fork_group(lambda: train_recipes(tmp_path, names), folder=tmp_path, seconds=1800)
    assert [code for code, _ in ends] == [0, 0], ends
    for name in names:
        (end,) = log_of(tmp_path / name.replace("/", "-") / "run", "end")
        assert (end["processes"], end["processes_agree"], end["step"]) == (2, True, 2), name
    if "cityscapes/tapadl_fan_base_hybrid" in names:
        assert "batch norms take the statistics of each process' own images" in "".join(told for _, told in ends)


@pytest.mark.parametrize("name", RECIPES)
def test_says_on_top_how_it_is_run_what_it_costs_and_what_it_scores(name):
    header = "\n".join(line for line in find_recipe(name).read_text().splitlines() if line.startswith("#"))
    assert f"train {name}" in header
    assert re.search(r"cost: \S+", header)
    assert re.search(r"score: \S+", header)


def test_the_published_baselines_are_all_there():
    models = {load_recipe(name).model.name for name in RECIPES if name.startswith("imagenet/")}
    sizes = ["tiny_12", "small_12", "base_18", "large_24"]
    assert {f"fan_{size}_p16_224" for size in sizes} <= models
    assert {"fan_tiny_8_p4_hybrid", "fan_small_12_p4_hybrid", "fan_base_16_p4_hybrid"} <= models
    assert {"fan_large_16_p4_hybrid", "fan_Xlarge_16_p4_hybrid"} <= models
    assert {f"fan_swin_{size}_patch4_window7_224" for size in ("tiny", "small", "base", "large")} <= models
    assert {"rvt_tiny_plus", "rvt_small_plus", "rvt_base_plus"} <= models
    assert {"tap_deit_base_patch16_224", "tap_swin_base_patch4_window7_224"} <= models  # TAP+ADL, Table 5
    assert {"resnet50", "seresnet50", "deit_small_patch16_224"} <= models  # FAN, Tables 2 to 4
    assert {"imagenet/fan_base_hybrid_22k", "imagenet/fan_large_hybrid_22k"} <= set(RECIPES)  # FAN, Table 8
    assert load_recipe("imagenet/fan_large_hybrid_22k_384").data.size == 384  # FAN, Table 11
    for folder in ("cifar10", "cifar100"):
        assert {f"{folder}/rvt_small_plus", f"{folder}/fan_small_hybrid"} <= set(RECIPES)


@pytest.mark.parametrize(
    ("name", "gpus", "lr"),
    [
        ("fan_tiny_hybrid", 32, 1e-3),
        ("fan_small_hybrid", 64, 4e-3),
        ("rvt_base_plus", 32, 1e-3),
        ("rvt_small_plus", 16, 2e-3),
        ("rspc_rvt_tiny_plus", 16, 2e-3),
        ("rspc_rvt_base_plus", 32, 2e-3),
        ("tapadl_rvt_base_plus", 32, 2e-3),
    ],
)
def test_the_learning_rate_at_the_released_batch_is_the_released_one(name, gpus, lr):
    recipe = load_recipe(f"imagenet/{name}")
    assert recipe.train.batch_size * gpus == recipe.train.global_batch
    assert recipe.optimizer.lr * recipe.train.global_batch / recipe.optimizer.lr_base_batch == pytest.approx(lr)


OF_FAN = ("fan_", "rspc_fan", "tapadl_fan", "resnet50", "vit_small")


@pytest.mark.parametrize("name", [name for name in RECIPES if name.startswith(("imagenet", "cifar"))])
def test_fans_loop_erases_after_mixing_and_all_others_before(name):
    folder, _, short = name.partition("/")
    after = folder.startswith("imagenet") and short.startswith(OF_FAN)
    assert load_recipe(name).augment.erasing_order == ("after" if after else "before")


@pytest.mark.parametrize("name", [name for name in RECIPES if "nano" not in name])
def test_rvts_and_cifars_augmented_pass_moves_batch_norm_alone_and_tapadls_trains(name):
    patches = load_recipe(name).objective.options.get("patches")
    released = {"imagenet/tapadl_rvt_base_plus": {"patch_size": 16}}
    discarded = "rvt" in name or (name.startswith("cifar") and "fan_" in name)
    assert patches == released.get(name, {"patch_size": 16, "discard_gradient": True} if discarded else None)


@pytest.mark.parametrize("name", ["rspc_rvt_base_plus", "tapadl_rvt_base_plus"])
def test_mixed_precision_is_off_where_the_release_has_it_off(name):
    assert load_recipe(f"imagenet/{name}").train.precision == "no"


@pytest.mark.parametrize("name", [name for name in RECIPES if load_recipe(name).train.global_batch])
def test_the_batch_that_the_text_names_is_the_one_of_its_command(name):
    text = find_recipe(name).read_text()
    gpus = int(re.search(r"torchrun --nproc-per-node (\d+) -m holdfast train", text)[1])
    train = share_batch(load_recipe(name), gpus).train
    said = re.search(r"batch: (\d+) images a step, on (\d+) GPUs in (\d+) pass(?:es)? of (\d+) each", text)
    assert tuple(map(int, said.groups())) == (train.global_batch, gpus, train.accumulate, train.batch_size)


COUNTED = ("imagenet/rspc_rvt_tiny_plus", "cityscapes/fan_tiny_hybrid", "coco/mask_fan_tiny_hybrid_1x")
PAPERS = tuple(name for name in RECIPES if load_recipe(name).train.global_batch)


@pytest.mark.parametrize("names", [COUNTED, pytest.param(PAPERS, marks=pytest.mark.full)], ids=["few", "all"])
def test_the_cost_on_top_is_what_is_counted(names):
    for name in names:
        text = find_recipe(name).read_text()
        gpus = int(re.search(r"torchrun --nproc-per-node (\d+) -m holdfast train", text)[1])
        assert "\n".join(cost_lines(name, load_recipe(name), gpus=gpus)) in text


def test_a_recipe_is_the_same_after_writing_and_reading():
    for name in RECIPES[::6]:
        recipe = load_recipe(name)
        assert load_recipe(as_values(recipe)) == recipe
        assert to_yaml(recipe).count("\n") > 60  # complete, defaults included


def test_every_rule_is_about_a_value_that_exists():
    paths = {path for path, _, _ in leaves(Recipe)}
    assert set(RULES) <= paths


@pytest.mark.parametrize("path", ["model.kwargs", "augment.mixup", "train.batch_size"])
def test_null_is_refused_where_a_value_must_be(path):
    section, name = path.split(".")
    with pytest.raises(HoldfastError, match=f"{path} must have a value, got null"):
        load_recipe("digits/fan_nano", {section: {name: None}})
