"""A step takes the published number of images, whatever the number of processes."""

import pytest
import timm
import torch
from torch import nn

import holdfast  # noqa: F401  (registers the models)
from holdfast.errors import HoldfastError
from holdfast.models.segmenter import segmenter
from holdfast.training.checkpoint import last_intact, rescale_for_processes
from holdfast.training.global_batch import share_batch, synchronize_batch_norms
from holdfast.training.recipe_files import load_recipe, recipe_names
from tests.training.helpers import log_of, run

PAPERS = ("imagenet/", "imagenet22k/", "cityscapes/", "coco/")
PUBLISHED = [
    name for name in recipe_names() if name.startswith(PAPERS) or (name.startswith("cifar") and "_small" in name)
]


def split(name: str, processes: int) -> tuple[int, int]:
    """Images per process and pass, and passes per step."""
    train = share_batch(load_recipe(name), processes).train
    return train.batch_size, train.accumulate


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_recipe_of_a_paper_takes_its_global_batch_on_one_two_and_eight_processes(name):
    recipe = load_recipe(name)
    for processes in (1, 2, 8):
        train = share_batch(recipe, processes).train
        assert train.batch_size * train.accumulate * processes == recipe.train.global_batch
        assert train.batch_size <= recipe.train.batch_size


@pytest.mark.parametrize(
    ("name", "images"),
    [
        ("imagenet/rspc_fan_base_hybrid", 4096),
        ("imagenet/rspc_fan_tiny_hybrid", 2048),
        ("imagenet/rvt_base_plus", 1024),
        ("imagenet/tapadl_rvt_base_plus", 2048),
        ("imagenet/fan_tiny_hybrid", 1024),
        ("cifar10/afat_rvt_small_plus", 128),
        ("cityscapes/fan_base_hybrid", 8),
        ("coco/cascade_fan_base_hybrid_3x", 16),
    ],
)
def test_the_global_batch_is_the_released_one(name, images):
    assert load_recipe(name).train.global_batch == images


def test_eight_gpus_take_one_cityscapes_crop_and_two_coco_images_each():
    assert split("cityscapes/fan_base_hybrid", 8) == (1, 1)
    assert split("coco/cascade_fan_base_hybrid_3x", 8) == (2, 1)
    assert split("coco/cascade_fan_base_hybrid_3x", 1) == (2, 8)


def test_without_a_global_batch_the_batch_grows_with_the_processes_as_ever():
    recipe = load_recipe("digits/fan_nano")
    assert recipe.train.global_batch is None
    assert share_batch(recipe, 8) == recipe


def test_accumulate_is_the_least_number_of_passes():
    recipe = load_recipe("imagenet/fan_tiny_hybrid", {"train": {"accumulate": 64}})
    assert share_batch(recipe, 8).train.batch_size == 2
    with pytest.raises(HoldfastError, match="128 in each of 8 processes, which cannot pass in equal parts of an even"):
        share_batch(load_recipe("imagenet/fan_tiny_hybrid", {"train": {"accumulate": 128}}), 8)


def test_a_number_of_processes_that_does_not_divide_it_is_refused():
    with pytest.raises(HoldfastError, match="takes 8 images per step, which 3 processes cannot share evenly"):
        share_batch(load_recipe("cityscapes/fan_base_hybrid"), 3)


def test_mixing_always_gets_pairs():
    recipe = load_recipe("cifar10/rvt_small_plus", {"train": {"global_batch": 12, "batch_size": 4}})
    assert share_batch(recipe, 1).train.batch_size == 4
    recipe = load_recipe("cifar10/rvt_small_plus", {"train": {"global_batch": 18, "batch_size": 4}})
    assert share_batch(recipe, 1).train.batch_size == 2  # three would leave one without a partner


def test_the_learning_rate_and_the_steps_are_those_of_the_global_batch(tmp_path):
    scaled = {"optimizer": {"lr": 1e-3, "lr_base_batch": 32}, "schedule": {"warmup_epochs": 0}}
    run(tmp_path / "whole", train={"batch_size": 16, "global_batch": 16}, **scaled)
    run(tmp_path / "parts", train={"batch_size": 4, "global_batch": 16}, **scaled)
    first = [log_of(tmp_path / name, "step")[0] for name in ("whole", "parts")]
    assert first[0]["lr"] == first[1]["lr"] == pytest.approx(5e-4, rel=0.2)
    assert [line["step"] for line in log_of(tmp_path / "parts", "step")] == [2, 4, 6, 8]


def test_more_images_per_step_than_there_are_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(HoldfastError, match=r"must not exceed the 64 training images.*--train\.global_batch"):
        run(tmp_path, train={"global_batch": 4096})
    assert not (tmp_path / "recipe.yaml").exists()


def kinds(model: nn.Module, part: str) -> set[type]:
    norms = (nn.BatchNorm2d, nn.SyncBatchNorm)
    return {type(module) for name, module in model.named_modules() if isinstance(module, norms) and part in name}


def test_synchronised_batch_norms_are_all_but_taps_own():
    with torch.device("meta"):
        encoder = {"depth": 2, "embed_dim": 32, "num_heads": 2, "feature_block": 1}
        model = segmenter("tap_fan_base_16_p4_hybrid", num_classes=19, head="segformer", **encoder)
    names = set(model.state_dict())
    model = synchronize_batch_norms(model)
    assert kinds(model, "decode_head") == {nn.SyncBatchNorm}
    assert kinds(model, "dwconv") == {nn.SyncBatchNorm}
    assert kinds(model, "dilation_predictor") == {nn.BatchNorm2d}
    assert set(model.state_dict()) == names


def test_a_batch_norm_alone_is_synchronised_with_its_weights():
    norm = timm.create_model("rvt_nano").patch_embed.proj[1]
    synchronised = synchronize_batch_norms(norm)
    assert isinstance(synchronised, nn.SyncBatchNorm)
    assert torch.equal(synchronised.weight, norm.weight)


@pytest.mark.parametrize("processes", [1, 2, 8])
def test_a_run_that_goes_on_with_another_number_of_processes_keeps_its_global_batch(processes, tmp_path):
    run(tmp_path, train={"batch_size": 8, "global_batch": 16, "epochs": 1})
    recipe = load_recipe(tmp_path / "recipe.yaml")
    assert last_intact(tmp_path / "checkpoints")[1]["position"]["images_per_step"] == 16
    train = share_batch(rescale_for_processes(recipe, tmp_path / "checkpoints", processes), processes).train
    assert train.batch_size * train.accumulate * processes == 16
    assert train.batch_size <= 8
