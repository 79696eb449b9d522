"""A run that was stopped is measured, analysed, asked and looked at by its best or last checkpoint."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import holdfast
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.lab.opened_model import open_model
from holdfast.models.factory import load_model
from tests.training.helpers import run
from tests.training.test_loop import StopsAt

VALUES = {"train": {"epochs": 3, "ema": 0.5}}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Stopped in its second epoch of four steps: the best checkpoint is that of step 4, the last that of step 6."""
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    assert run(folder, **VALUES, objective=StopsAt(6)).stopped_by
    assert not (folder / "config.json").exists()
    return folder


@pytest.mark.parametrize(("name", "step"), [("best", 4), ("last", 6)])
def test_its_checkpoints_are_whole_models_with_class_names(stopped, name, step):
    loaded = load_model(f"run:{stopped}@{name}")
    weights = load_file(stopped / "checkpoints" / f"step-{step:08d}" / "ema.safetensors")
    assert all(torch.equal(value, weights[key]) for key, value in loaded.model.state_dict().items())
    assert loaded.classes == tuple(map(str, range(10)))
    assert loaded.model.pretrained_cfg["input_size"] == (3, 32, 32)


@pytest.mark.parametrize("name", ["best", "last"])
def test_commands_take_a_checkpoint_of_it(stopped, name, tmp_path, capsys):
    out = ["--out", str(tmp_path)]
    evaluate = ["evaluate", str(stopped), "--suite=clean", "--workers=0", "--limit=20"]
    assert main([*evaluate, *out, "--checkpoint", name]) == 0
    (header,) = tmp_path.glob("records/*/evaluation.json")
    assert json.loads(header.read_text())["model"] == f"run:{stopped}@{name}"
    analyze = ["analyze", str(stopped), "--data=digits:test", "--limit=4", "--only=grouping"]
    assert main([*analyze, *out, "--checkpoint", name]) == 0
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(tmp_path / "black.png")
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "black.png"), "--model", str(stopped), "--checkpoint", name, "--top=1"]) == 0
    assert "%" in capsys.readouterr().out
    assert open_model(f"run:{stopped}@{name}", "digits:test", limit=4).name == f"run:{stopped}@{name}"


def test_without_a_checkpoint_a_sentence_says_which_ways_there_are(stopped):
    with pytest.raises(
        HoldfastError,
        match=r"has not finished: use --checkpoint last or --checkpoint best, or resume it with .* --resume",
    ):
        holdfast.evaluate(stopped, "digits:test")


def test_a_run_of_an_earlier_version_says_how_to_go_on(tmp_path):
    run(tmp_path / "run", **VALUES, objective=StopsAt(6))
    (tmp_path / "run" / "checkpoints" / "config.json").unlink()
    with pytest.raises(
        HoldfastError, match=r"started by an earlier Holdfast; resume it with holdfast train --out .* --resume"
    ):
        holdfast.evaluate(f"run:{tmp_path / 'run'}@last", "digits:test")


def test_a_file_of_weights_is_a_checkpoint_of_it_too(stopped):
    file = stopped / "checkpoints" / "step-00000006" / "model.safetensors"
    state = load_model(f"run:{stopped}@{file}").model.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in load_file(file).items())
