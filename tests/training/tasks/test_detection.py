"""Detectors train in the same loop: every loss in the log, exact resume, any sizes, one sentence for what is wrong."""

import json

import numpy as np
import pytest

import holdfast
from holdfast.cli.main import main
from holdfast.models.factory import load_model
from holdfast.training.loop import train
from holdfast.training.recipe_files import load_recipe, merge, recipe_names
from tests.tasks.detectors import coco_folder
from tests.training.helpers import assert_same_run, log_of
from tests.training.shrunken_recipes import shrunken_model

DETECTION_RECIPES = [name for name in recipe_names() if load_recipe(name).model.name == "detector"]

SMALL = {
    "channels": 8,
    "head_width": 16,
    "mask_convs": [8],
    "top_channels": 8,
    "min_size": [56, 64],
    "max_size": 96,
    "proposals": [20, 20],
    "samples": 16,
    "anchors": 32,
    "score_threshold": 0.0,
}
TINY_ENCODER = {"depth": 1, "embed_dim": 32, "num_heads": 2, "feature_block": 0, "drop_path_rate": 0.3}
NANO = {"patch_size": 16, "trunk_stride": 8, "img_size": 64, **TINY_ENCODER}
TINY = {
    "data": {"train": "scene-objects:train,64x80,16", "val": "scene-objects:val,64x80,2", "workers": 0},
    "model": {
        "name": "detector",
        "kwargs": {"encoder": "fan_nano_hybrid", "encoder_options": NANO, "kind": "cascade", **SMALL},
    },
    "augment": {"hflip": 0.5, "object_crop": 0.5, "object_scales": [64, 72], "object_crop_sides": [40, 60]},
    "objective": {"name": "detection"},
    "schedule": {"warmup_epochs": 0},
    "train": {"epochs": 2, "batch_size": 4, "device": "cpu", "log_steps": 1, "ema": 0.9},
}


def run(out, *, objective=None, resume=False, **overrides):
    return train(merge(TINY, overrides), out=out, objective=objective, resume=resume, show=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Multi-scale, crops, flips, drop-path and EMA on; 2 epochs of 4 steps."""
    folder = tmp_path_factory.mktemp("trained")
    assert run(folder).step == 8
    return folder


def test_the_log_has_every_loss_and_the_validation_f1(trained):
    steps = log_of(trained, "step")
    assert len(steps) == 8
    assert {f"stage{n}.loss_{part}" for n in (1, 2, 3) for part in ("classifier", "box_reg", "mask")} <= set(steps[0])
    for line in steps:
        parts = [value for name, value in line.items() if "loss_" in name]
        assert line["loss"] == pytest.approx(sum(parts), rel=1e-4)
    assert all(0 <= line["f1"] <= 100 for line in log_of(trained, "epoch"))


class StopsAt:
    """The detector's losses, and a signal after so many batches."""

    def __init__(self, batches):
        from holdfast.methods import detection_losses

        self.left, self.inner = batches, detection_losses

    def __call__(self, model, images, targets):
        import signal

        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGTERM)
        return self.inner(model, images, targets)


def test_a_stopped_run_resumes_to_the_same_bits(trained, tmp_path):
    """The sampling of anchors and boxes, scales, crops and drop-path are drawn again as they would have been."""
    assert run(tmp_path / "parts", objective=StopsAt(3)).step == 3
    assert run(tmp_path / "parts", resume=True).step == 8
    assert_same_run(trained, tmp_path / "parts")


def test_workers_do_not_change_the_run(trained, tmp_path):
    run(tmp_path / "workers", data={"workers": 2})
    assert_same_run(trained, tmp_path / "workers")


def test_a_finished_run_is_loaded_and_evaluated_by_the_command_line(trained, tmp_path, capsys):
    model = load_model(f"run:{trained}").model.eval()
    assert model.settings.kind == "cascade"
    assert model.num_classes == 10
    argv = ["evaluate", str(trained), "--data", "scene-objects:test,64x80,2", "--suite", "clean", "--workers", "0"]
    assert main([*argv, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "box AP" in printed
    assert "mask AP" in printed


def test_images_of_any_sizes_and_without_objects_train(tmp_path):
    data = coco_folder(tmp_path, images=5)
    result = run(
        tmp_path / "run",
        data={"train": data, "val": data},
        model={"kwargs": {"kind": "mask"}},
        augment={"object_crop": 0.0},
        train={"epochs": 1, "batch_size": 5},
    )
    assert result.step == 1
    assert json.loads((tmp_path / "run" / "config.json").read_text())["label_names"] == ["c1", "c3", "c13"]


def test_corruptions_may_be_a_part_of_training(trained, tmp_path):
    run(tmp_path, augment={"corruption": {"kinds": ["fog"], "severities": [5]}}, train={"epochs": 1})
    assert log_of(tmp_path, "step")[0]["loss"] != log_of(trained, "step")[0]["loss"]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"augment": {"mixup": 0.8}}, "augment.mixup is a setting of classification: omit it for detection, got 0.8"),
        ({"data": {"size": 64}}, "data.size must be null for detection"),
        ({"model": {"kwargs": {"kind": "msak"}}}, "kind must be one of faster, mask, cascade"),
        ({"model": {"kwargs": {"chanels": 3}}}, "settings must be those of DetectorSettings, got 'chanels'"),
        (
            {"model": {"name": "vit_nano", "kwargs": {}}},
            "and model.name detector must be used together",
        ),
        ({"objective": {"name": "cross_entropy"}}, "and model.name detector must be used together"),
        ({"model": {"name": "vit_nano"}, "objective": {"name": "cross_entropy"}}, "model.name must be detector"),
        ({"data": {"val": "digits"}}, "must be of one task"),
        ({"data": {"train": "coco:nowhere,nothing.json"}}, "IMAGES of coco:IMAGES,ANNOTATIONS must be a folder"),
        ({"augment": {"object_crop_sides": [9, 3]}}, "augment.object_crop_sides must be two positive numbers"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_be_trained_is_refused_in_one_sentence(tmp_path, overrides, sentence):
    other_model = "name" in overrides.get("model", {})
    recipe = merge({key: value for key, value in TINY.items() if not (other_model and key == "model")}, overrides)
    with pytest.raises(holdfast.HoldfastError, match=sentence):
        train(recipe, out=tmp_path / "run", show=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", DETECTION_RECIPES)
def test_shipped_recipes_build_and_take_two_steps_at_a_shrunken_size(name, tmp_path):
    overrides = {
        "data": {"train": "scene-objects:train,64x80,4", "val": "scene-objects:val,64x80,1", "workers": 0},
        "model": {"kwargs": {"encoder_options": TINY_ENCODER, **SMALL}},
        "augment": {"object_scales": [64], "object_crop_sides": [40, 60]},
        "train": {"epochs": 1, "batch_size": 2, "global_batch": 2, "device": "cpu", "log_steps": 1},
        "schedule": {"warmup_epochs": 0},
    }
    if load_recipe(name).data.val_subset:
        overrides["data"]["val_subset"] = 1
    if "swin" in name:
        overrides["model"]["kwargs"]["encoder_options"] = shrunken_model("swin")
    assert train(name, out=tmp_path / "run", overrides=overrides, show=False).step == 2
    assert all(np.isfinite(line["loss"]) for line in log_of(tmp_path / "run", "step"))
