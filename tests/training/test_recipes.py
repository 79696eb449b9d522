"""Every shipped recipe is complete, says what it costs, builds, and takes two steps at a shrunken size."""

import re
from pathlib import Path

import numpy as np
import pytest
import timm
from safetensors.torch import save_file

from holdfast.errors import HoldfastError
from holdfast.training.loop import train
from holdfast.training.recipe import Recipe
from holdfast.training.recipe_files import RULES, as_values, find_recipe, leaves, load_recipe, recipe_names, to_yaml
from tests.training.helpers import log_of

RECIPES = recipe_names()


def shrunken(name: str) -> dict:
    """Few and narrow blocks, small images; everything else is the recipe's own."""
    recipe = load_recipe(name)
    model = recipe.model.name or ""
    kwargs: dict = {}
    if "swin" in model:
        kwargs = {"depths": [1, 1, 1, 1], "embed_dim": 16, "num_heads": [1, 2, 4, 8]}
    elif "rvt" in model:
        stages = 2 if "tiny" in model else 1
        kwargs = {"depths": [1] * stages, "masked_blocks": 1, "embed_dims": [32] * stages, "num_heads": [2] * stages}
    elif "resnet" in model:
        kwargs = {"layers": [1, 1, 1, 1]}
    elif "deit" in model:
        kwargs = {"depth": 1, "embed_dim": 32, "num_heads": 2}
    elif "fan" in model:
        kwargs = {"depth": 1, "embed_dim": 32, "num_heads": 2, "feature_block": 0}
        kwargs |= {"tail": [64, 1, 4]} if "Xlarge" in model else {}
    else:
        kwargs = {"depth": 1}
    return {"kwargs": kwargs} | ({} if recipe.model.name else {"name": "vit_nano"})


def weight_file(name: str, folder: Path, *, size: int) -> str:
    """Random weights of a recipe's shrunken model; of another number of classes where the recipe wants a new head."""
    kwargs, new = shrunken(name)["kwargs"], load_recipe(name).model.head == "new"
    model = timm.create_model(
        load_recipe(name).model.name, img_size=size, **kwargs, **({"num_classes": 5} if new else {})
    )
    save_file(model.state_dict(), folder / "pretrained.safetensors")
    return str(folder / "pretrained.safetensors")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "pictures.npz"
    np.savez(path, x=rng.integers(0, 256, (8, 40, 40, 3), dtype=np.uint8), y=np.arange(8) % 2)
    return f"npz:{path}"


@pytest.mark.parametrize("name", [name for name in RECIPES if load_recipe(name).model.name != "detector"])
def test_builds_and_takes_two_steps_at_a_shrunken_size(name, pictures, tmp_path):
    nano = "nano" in (load_recipe(name).model.name or "nano")
    overrides = {
        "data": {"train": pictures, "val": pictures, "workers": 0, "size": 32 if nano else 64},
        "model": shrunken(name),
        "train": {"batch_size": 4, "epochs": 1, "device": "cpu", "log_steps": 1},
        "schedule": {"cooldown_epochs": 0, "warmup_epochs": 0},
    }
    if load_recipe(name).model.init is not None:
        overrides["model"] = shrunken(name) | {"init": weight_file(name, tmp_path, size=overrides["data"]["size"])}
    if (
        load_recipe(name).model.adapt is not None
    ):  # its phases are runs of their own, and its weights have other classes here
        overrides["model"] |= {"head": "auto"}
        overrides["train"] |= {"phases": {"run": "robust"}}
    if load_recipe(name).data.train.partition(":")[0] in ("scenes", "camvid", "cityscapes"):  # label maps
        overrides["data"] |= {"train": "scenes:train,64x64,8", "val": "scenes:val,64x64,2"}
        overrides["augment"] = {"joint": {"crop": [64, 64], "box": None}}
        overrides["train"] = {**overrides["train"], "steps": 2}
        del overrides["train"]["epochs"]
    assert train(name, out=tmp_path / "run", overrides=overrides, show=False).step == 2
    assert all(np.isfinite(line["loss"]) for line in log_of(tmp_path / "run", "step"))


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
    assert recipe.optimizer.lr * recipe.train.batch_size * gpus / recipe.optimizer.lr_base_batch == pytest.approx(lr)


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
    discarded = "rvt" in name or name.startswith("cifar")
    assert patches == released.get(name, {"patch_size": 16, "discard_gradient": True} if discarded else None)


@pytest.mark.parametrize("name", ["rspc_rvt_base_plus", "tapadl_rvt_base_plus"])
def test_mixed_precision_is_off_where_the_release_has_it_off(name):
    assert load_recipe(f"imagenet/{name}").train.precision == "no"


@pytest.mark.parametrize("name", [name for name in RECIPES if "--nnodes" in find_recipe(name).read_text()])
def test_the_global_batch_that_the_text_names_is_the_one_of_its_command(name):
    text = find_recipe(name).read_text()
    nodes, gpus = (int(re.search(rf"--{option} (\d+)", text)[1]) for option in ("nnodes", "nproc-per-node"))
    batch = load_recipe(name).train.batch_size
    if said := re.search(r"global batch (\d+)", text):
        assert nodes * gpus * batch == int(said[1])
    if said := re.search(r"(\d+) images on each of (\d+) GPUs", text):
        assert (batch, nodes * gpus) == (int(said[1]), int(said[2]))


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
