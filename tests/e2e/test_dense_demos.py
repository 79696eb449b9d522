"""``holdfast demo --task segmentation`` and ``--task detection``: recipes that load, refusals, and the whole."""

import re

import numpy as np
import pytest

from holdfast.cli.demo_settings import DEMOS
from holdfast.cli.main import main
from holdfast.metrics.iou import mean_iou
from holdfast.records.records import load_records
from holdfast.training.recipe_files import load_recipe


@pytest.mark.parametrize("demo", DEMOS.values(), ids=DEMOS.keys())
def test_every_model_of_a_demo_is_a_recipe_that_differs_in_the_method_alone(demo):
    recipes = {name: load_recipe(recipe, changed) for name, (recipe, changed) in demo.models.items()}
    plain = recipes["baseline"]
    assert plain.objective.options.keys().isdisjoint({"adl", "afat"})
    assert recipes["tap_adl"].objective.options["adl"]["variant"] == "paper"
    assert "tap" in str(recipes["tap_adl"].model.kwargs)
    assert "afat" in recipes["afat"].objective.options
    for recipe in recipes.values():
        assert (recipe.optimizer, recipe.schedule, recipe.train) == (plain.optimizer, plain.schedule, plain.train)


def test_an_unknown_task_is_one_sentence(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--task", "segmantation"]) == 2
    assert "--task must be one of classification, segmentation, detection" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
@pytest.mark.parametrize("task", ["segmentation", "detection"])
def test_the_demo_ends_with_a_table_and_a_report_and_is_not_done_twice(task, tmp_path, capsys):
    assert main(["demo", "--task", task, "--quick", "--out", str(tmp_path)]) == 0
    printed, demo = capsys.readouterr().out, DEMOS[task]
    for name in demo.models:
        (records,) = load_records(tmp_path / name)
        (row,) = re.findall(rf"^ *{name} +(\d.*\))", printed, re.MULTILINE)
        shown = [float(value) for value in re.findall(r"([\d.]+) \(", row)]
        assert len(shown) == len(demo.columns)
        if task == "segmentation":
            clean = float(100 * mean_iou(records.cells["clean"].counts.sum(axis=0)))
            assert shown[0] == pytest.approx(clean, abs=0.051)
        assert np.isfinite(shown[1])
    page = (tmp_path / "report.html").read_text()
    for part in ("data-1-severity", "data-1-heat", "data-1-examples", "breaks", "training-loss"):
        assert f'id="{part}"' in page, part
    assert len(page) < 5e6
    assert main(["demo", "--task", task, "--quick", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("already trained") == len(demo.models)
