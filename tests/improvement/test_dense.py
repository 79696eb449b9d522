"""Segmenters and detectors are improved by the methods that apply, and chosen by the extra kinds."""

import html

import pytest

from holdfast.improvement.decide import read_decision
from holdfast.improvement.halves import share_images
from holdfast.improvement.improve import make_request, write_report
from holdfast.improvement.plan import Step
from holdfast.improvement.prepare import suites_of
from holdfast.improvement.run import run_request
from holdfast.records import load_records
from tests.improvement.plans import short_plan

RECIPES = {
    "segmentation": (
        "scenes/fan_mini",
        "scenes:{},48x64,60",
        {
            "model": {"name": "fan_nano_hybrid", "kwargs": {"head": "segformer"}},
            "augment": {"joint": {"crop": [48, 64], "scale": [1.0, 1.0], "max_share": 1.0, "distort": False}},
        },
    ),
    "detection": ("scene_objects/mask_fan_nano_hybrid", "scene-objects:{},48x64,60", {"data": {"val_subset": 4}}),
}


@pytest.mark.full
@pytest.mark.parametrize("task", ["segmentation", "detection"])
def test_a_task_of_label_maps_or_boxes_is_decided(task, tmp_path):
    recipe, spec, values = RECIPES[task]
    data = {"train": spec.format("train"), "val": spec.format("val")}
    own = {"workers": 0, "train_subset": 4, **values.get("data", {})}
    overrides = {**values, "data": own, "train": {"batch_size": 2, "device": "cpu"}}
    request = make_request(None, budget="1h", data=data, test=spec.format("test"), recipe=recipe, overrides=overrides)
    shares = share_images(request.recipe.data, request.test)
    assert shares.task == task
    choosing, testing = suites_of(request, shares)
    names = {"plain": {}, "low-lr": {"optimizer": {"lr": 1e-4}}}
    plan = short_plan(
        request,
        names,
        stop=shares.stop,
        choosing=Step(shares.choose, choosing, 4),
        testing=Step(shares.test, testing[-1], 4),
        lengths={"0": {name: {"steps": 2, "whole": 1.0} for name in names}},
    )
    plan.write(tmp_path / "out")
    decision = run_request(request, out=tmp_path / "out")
    assert decision == read_decision(tmp_path / "out")
    assert decision.verdict in ("plain", "use")
    (records,) = load_records(tmp_path / "out" / "winner")
    assert records.task == task
    assert len({cell.spec.kind for cell in records.cells.values()}) >= 15
    page = write_report(decision, tmp_path / "out").read_text()
    assert html.escape(decision.sentence) in page
