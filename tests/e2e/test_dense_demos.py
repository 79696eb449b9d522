"""``holdfast demo --task segmentation`` and ``--task detection``: recipes that load, refusals, and the whole."""

import re

import pytest
import torch
from torch import nn

import holdfast
from holdfast.cli.demo import nothing_found, table
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


class Blind(nn.Module):
    """A detector that finds nothing."""

    task, num_classes = "detection", 10

    def forward(self, images, targets=None):
        return [
            {
                "boxes": torch.zeros(0, 4),
                "labels": torch.zeros(0, dtype=torch.int64),
                "scores": torch.zeros(0),
                "masks": torch.zeros(0, 1, *image.shape[-2:]),
            }
            for image in images
        ]


def test_a_demo_whose_models_find_nothing_says_why_and_shows_no_nan(capsys):
    from holdfast.cli.console import print_table

    demo = DEMOS["detection"]
    found = holdfast.evaluate(Blind(), "scene-objects:test,plain,64x96,2", demo.suites, workers=0, show=False)
    records = dict.fromkeys(demo.models, found)
    print_table(table(demo, records))
    printed = capsys.readouterr().out
    assert "0.0" in printed
    assert "nan" not in printed
    (sentence,) = nothing_found(demo, records, demo.quick)
    assert "one pass over the training images of --quick (scene-objects:train,plain,64x96,32)" in sentence


@pytest.mark.full
@pytest.mark.parametrize("task", ["segmentation", "detection"])
def test_the_demo_ends_with_a_table_and_a_report_and_is_not_done_twice(task, tmp_path, capsys):
    assert main(["demo", "--task", task, "--quick", "--out", str(tmp_path)]) == 0
    printed, demo = capsys.readouterr().out, DEMOS[task]
    for name in demo.models:
        (records,) = load_records(tmp_path / name)
        (row,) = re.findall(rf"^ *{name} +(?!vs)(\S.*)$", printed, re.MULTILINE)
        shown = re.split(r"  +", row.strip())
        assert len(shown) == len(demo.columns)
        assert "nan" not in row
        if task == "segmentation":
            clean = float(100 * mean_iou(records.cells["clean"].counts.sum(axis=0)))
            assert float(shown[0].split()[0]) == pytest.approx(clean, abs=0.051)
    if task == "detection":  # models that find nothing, and the reason; or numbers
        assert ("All scores are 0" in printed) == (set(re.findall(r" (\d+\.\d)(?: |$)", printed)) == {"0.0"})
    page = (tmp_path / "report.html").read_text()
    for part in ("data-1-severity", "data-1-heat", "data-1-examples", "breaks", "training-loss"):
        assert f'id="{part}"' in page, part
    assert len(page) < 5e6
    assert main(["demo", "--task", task, "--quick", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("already trained") == len(demo.models)
