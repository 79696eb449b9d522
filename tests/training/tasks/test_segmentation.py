"""Segmenters train in the same loop: exact resume, validation by mIoU, and starts from classifiers."""

import os
import signal

import numpy as np
import pytest
import timm
import torch

import holdfast
from holdfast.errors import HoldfastError
from holdfast.metrics.iou import mean_iou, pixel_counts
from holdfast.models.segmenter import Segmenter
from holdfast.training.build import build_optimizer, build_schedule
from holdfast.training.recipe_files import load_recipe, merge
from tests.training.helpers import assert_same_run, log_of

TINY = {
    "data": {"train": "scenes:train,48x64,8", "val": "scenes:val,40x56,3", "workers": 0},
    "model": {"name": "fan_mini_4_p4_hybrid", "kwargs": {"depth": 1, "embed_dim": 32, "feature_block": 0, "width": 16}},
    "augment": {"hflip": 0.0, "joint": {"crop": [32, 48], "scale": [0.8, 1.25]}},
    "schedule": {"shape": "poly", "warmup_steps": 2},
    "optimizer": {"groups": "segmentation", "lr": 1e-3},
    "train": {"epochs": 2, "batch_size": 4, "device": "cpu", "log_steps": 1},
}


def run(out, *, resume=False, objective=None, **overrides):
    return holdfast.train(merge(TINY, overrides), out=out, resume=resume, objective=objective, show=False)


def load(folder):
    return timm.create_model(f"local-dir:{folder}", pretrained=True).eval()


def test_a_run_validates_by_miou_and_leaves_a_segmenter_that_timm_loads(tmp_path):
    result = run(tmp_path / "run")
    assert result.step == 4
    last = log_of(tmp_path / "run", "epoch")[-1]
    assert last["miou"] == result.accuracy
    model = load(tmp_path / "run")
    assert isinstance(model, Segmenter)
    assert model.num_classes == 11
    source = holdfast.data.open_data("scenes:val,40x56,3")
    mean, std = (torch.tensor(model.pretrained_cfg[name]).view(3, 1, 1) for name in ("mean", "std"))
    total = 0
    for index in range(3):
        image = torch.from_numpy(np.asarray(source.image(index)).copy()).permute(2, 0, 1) / 255
        with torch.no_grad():
            predicted = model(((image - mean) / std)[None])[0].argmax(0).numpy()
        total = total + pixel_counts(predicted, source.target(index), classes=11)
    assert result.accuracy == pytest.approx(100 * mean_iou(total), abs=1e-4)
    records = holdfast.evaluate(tmp_path / "run", "scenes:val,40x56,3", workers=0, show=False)
    np.testing.assert_array_equal(records.cells["clean"].counts.sum(axis=0), total)


def test_the_result_does_not_depend_on_workers(tmp_path):
    for workers in (0, 2):
        run(tmp_path / str(workers), data={"workers": workers})
    assert_same_run(tmp_path / "0", tmp_path / "2")


def test_a_stopped_run_goes_on_to_the_same_end(tmp_path):
    run(tmp_path / "whole", train={"checkpoint_steps": 1})

    class Stopping:
        """The plain objective, until the third step raises a signal."""

        def __init__(self):
            self.calls = 0

        def __call__(self, model, images, targets):
            self.calls += 1
            if self.calls == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            return holdfast.methods.CrossEntropy(holdfast.methods.pixel_cross_entropy)(model, images, targets)

    stopped = run(tmp_path / "stopped", objective=Stopping(), train={"checkpoint_steps": 1})
    assert stopped.stopped_by == signal.SIGTERM
    assert stopped.step == 3
    assert run(tmp_path / "stopped", resume=True, train={"checkpoint_steps": 1}).step == 4
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_a_length_in_steps_ends_in_the_middle_of_an_epoch(tmp_path):
    result = run(tmp_path / "run", train={"steps": 3})
    assert result.step == 3
    assert [line["step"] for line in log_of(tmp_path / "run", "epoch")] == [2, 3]
    rates = [line["lr"] for line in log_of(tmp_path / "run", "step")]
    assert rates == pytest.approx([1e-2 * f for f in (1e-6, (1 - 1 / 3) * 0.5000005, 1 / 3)], rel=1e-5)  # the head's


def test_a_classification_run_and_its_weights_start_an_encoder(tmp_path):
    classifier = {
        "data": {"train": "digits", "val": "digits", "train_subset": 16, "val_subset": 8, "size": 32, "workers": 0},
        "model": {"name": "fan_mini_4_p4_hybrid", "kwargs": {"depth": 1, "embed_dim": 32, "feature_block": 0}},
        "train": {"epochs": 1, "batch_size": 8, "device": "cpu"},
    }
    holdfast.train(classifier, out=tmp_path / "classifier", show=False)
    first = load(tmp_path / "classifier")
    frozen = {"train": {"steps": 1}, "model": {"frozen": ["backbone"], "init": f"run:{tmp_path / 'classifier'}"}}
    run(tmp_path / "seg", **frozen)
    second = load(tmp_path / "seg")
    for key, value in second.backbone.state_dict().items():
        torch.testing.assert_close(value, first.state_dict()[key], atol=0, rtol=0)
    other = {"init": f"run:{tmp_path / 'seg'}", "frozen": ["backbone", "decode_head"]}
    with pytest.raises(HoldfastError, match="must leave something to train"):
        run(tmp_path / "again", model=other)
    third = run(
        tmp_path / "third", model={"init": f"run:{tmp_path / 'seg'}", "frozen": ["backbone"]}, train={"steps": 1}
    )
    assert third.step == 1


def test_adl_trains_a_segmenter(tmp_path):
    run(tmp_path / "run", objective=None, **{"train": {"steps": 1}}, model={"name": "tap_fan_mini_4_p4_hybrid"})
    adl = merge(TINY, {"objective": {"name": "robust", "options": {"adl": {"weight": 1.0}}}, "train": {"steps": 1}})
    holdfast.train(adl, out=tmp_path / "adl", show=False)
    assert "adl" in log_of(tmp_path / "adl", "step")[0]


def test_published_recipes_have_the_published_values():
    recipe = load_recipe("cityscapes/fan_base_hybrid")
    assert recipe.train.steps == 160_000
    assert recipe.objective.options == {"divisor": "all"}
    with torch.device("meta"):
        model = holdfast.segmenter(recipe.model.name, **recipe.model.kwargs)
    assert (model.window, model.stride, model.sizes) == ((1024, 1024), 768, "floor")
    optimizer = build_optimizer(model, recipe.optimizer, global_batch=8)
    schedule, _ = build_schedule(optimizer, recipe.schedule, epochs=1, steps=1, length=160_000)
    schedule(80_000)
    rates = sorted({round(group["lr"], 12) for group in optimizer.param_groups})
    assert rates == pytest.approx([3e-5, 3e-4])
    assert sorted({group["weight_decay"] for group in optimizer.param_groups}) == [0.0, 0.01]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"augment": {"mixup": 0.8}}, "augment.mixup is for classification"),
        ({"augment": {"joint": {"crops": 3}}}, "unknown option 'crops' of augment.joint; did you mean 'crop'"),
        ({"model": {"kwargs": {"head": "upernet"}}}, "head must be one of"),
        ({"model": {"name": "fan_mni"}}, "unknown model"),
        ({"data": {"val": "digits"}}, "must be of one task"),
        ({"train": {"steps": 0}}, "train.steps must be at least 1"),
    ],
)
def test_bad_recipes_get_one_sentence_and_leave_nothing(tmp_path, overrides, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        run(tmp_path / "run", **overrides)
    assert not (tmp_path / "run").exists()
