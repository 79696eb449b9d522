"""``holdfast analyze`` in process: a run's folder, several models, redrawing, and bad input in one sentence."""

import json
import shutil

import pytest
import timm
import torch

import holdfast  # noqa: F401 - registers our models
from holdfast.analysis.registry import ANALYSES
from holdfast.cli.main import main

QUICK = ["--limit=3", "--masks=2", "--mask-images=2", "--pictures=1", "--clusters=2"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What a training run leaves behind, with random weights."""
    return make_run(tmp_path_factory.mktemp("runs") / "small", "fan_nano")


def make_run(folder, name, **kwargs):
    from safetensors.torch import save_file
    from timm.models._hub import save_config_for_hf

    torch.manual_seed(0)
    folder.mkdir()
    model = timm.create_model(name, num_classes=10, **kwargs)
    save_file(model.state_dict(), folder / "model.safetensors")
    save_config_for_hf(model, folder / "config.json")
    (folder / "recipe.yaml").write_text("data: {train: digits, val: digits}\n")
    return folder


def test_every_analysis_of_a_run_on_its_own_data(run, capsys):
    assert main(["analyze", str(run), *QUICK]) == 0
    table, said = capsys.readouterr()
    assert "effective tokens, last layer" in table
    for name in ("patches", "dilation", "gates"):
        assert f"small: {name} is skipped: " in said
    (folder,) = (run / "analysis").iterdir()
    assert folder.name.startswith("digits-test-")
    stored = {path.stem for path in folder.glob("*.safetensors")}
    assert stored == set(ANALYSES) - {"patches", "dilation", "gates"}
    figures = {path.name for path in (folder / "figures").iterdir()}
    assert {"stability-histogram.png", "occlusion-spread.png", "groups-1.png", "query-1.png"} <= figures


def test_figures_are_redrawn_from_what_is_stored_without_the_model(tmp_path):
    run = make_run(tmp_path / "run", "vit_nano")
    assert main(["analyze", str(run), "--only=diversity", "--limit=2"]) == 0
    (figure,) = run.glob("analysis/*/figures/*.png")
    shutil.copytree(run / "analysis", tmp_path / "elsewhere" / "analysis")
    before = figure.read_bytes()
    figure.unlink()
    (run / "model.safetensors").unlink()
    assert main(["analyze", "--redraw", str(run)]) == 0
    assert figure.read_bytes() == before
    (copied,) = tmp_path.glob("elsewhere/analysis/*/figures/*.png")
    copied.unlink()
    assert main(["analyze", "--redraw", str(run), f"--out={tmp_path / 'elsewhere'}"]) == 0
    assert copied.read_bytes() == before


def test_several_models_are_shown_side_by_side(run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = make_run(tmp_path / "other", "vit_nano")
    options = ["--only=noise-decay", "--limit=3", "--data=digits:val"]
    assert main(["analyze", str(run), f"run:{other}", *options, "--out=both"]) == 0
    assert {path.name for path in (tmp_path / "both").iterdir()} == {"noise-decay.png"}
    assert list((other / "analysis").glob("digits-val-*/noise-decay.safetensors"))
    assert "figures of all models side by side in both" in capsys.readouterr().err


def test_a_model_that_is_no_run_has_its_results_in_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_models.py").write_text(
        "import timm\ndef cnn():\n    return timm.create_model('resnet10t', num_classes=10)\n"
    )
    model = ["analyze", "python:my_models:cnn", "--data=digits:val", "--limit=4", "--size=32"]
    assert main([*model, "--only=noise-decay,stability"]) == 0
    assert "stability is skipped: ResNet has no attention that Holdfast can read" in capsys.readouterr().err
    assert list((tmp_path / "runs").rglob("noise-decay.safetensors"))
    assert main([*model, "--only=stability"]) == 2
    assert "stability is not possible: ResNet has no attention" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--only=stabilty"], "unknown analysis 'stabilty'"),
        (["--cells=fog"], "cells must be named KIND/SEVERITY"),
        (["--cells=fogg/3"], "fogg"),
        (["--query=middle"], "query must be two shares"),
        (["--clusters=1"], "clusters must lie between 2 and 8"),
        (["--masks=0"], "masks must be at least 1"),
        (["--data=folder:/nowhere"], "nowhere"),
        (["--corruptor=/nowhere"], "corruptor must be a file of an AFAT run"),
        (["--epsilon=2"], "epsilon must lie between 0 and 1"),
        (["--limit=-1"], "limit must be at least 1"),
        (["--device=abacus"], "device"),
        (["--colour=red"], "unknown option '--colour'"),
    ],
)
def test_bad_input_gets_one_sentence(run, arguments, sentence, capsys):
    assert main(["analyze", str(run), *arguments]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert "Traceback" not in said


def test_models_that_are_not_there_get_one_sentence(tmp_path, capsys):
    assert main(["analyze", str(tmp_path / "nowhere"), "--data=digits"]) == 2
    assert "model must be a run's folder or a spec" in capsys.readouterr().err
    assert main(["analyze", "timm:vit_nano"]) == 2
    assert "needs --data" in capsys.readouterr().err
    assert main(["analyze", "--redraw", str(tmp_path)]) == 2
    assert "--redraw needs stored results" in capsys.readouterr().err
    (tmp_path / "config.json").write_text(json.dumps({}))
    assert main(["analyze", str(tmp_path), "--data=digits"]) == 2
    assert "model.safetensors" in capsys.readouterr().err
    assert not list(tmp_path.rglob("analysis"))
