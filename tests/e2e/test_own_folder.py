"""The walk of somebody with a folder of photographs: train with any value, predict, choose a checkpoint."""

import csv
import io
import json

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file

import holdfast
from holdfast.cli.main import main
from holdfast.io.yaml import read_yaml
from holdfast.methods import TERMS
from holdfast.models.factory import load_model

SMALL = [
    "--model.name=vit_nano",
    "--model.kwargs.depth=1",
    "--data.workers=0",
    "--train.batch_size=6",
    "--data.size=32",
]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Red and blue pictures, one folder each."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(12):
        name = ("red", "blue")[number % 2]
        pixels = np.random.default_rng(number).integers(0, 100, (40, 40, 3), dtype=np.uint8)
        pixels[..., 0 if name == "red" else 2] += 150
        (folder / name).mkdir(exist_ok=True)
        Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def trained(photos, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "mine"
    data = [f"--data.train=folder:{photos}", f"--data.val=folder:{photos}"]
    methods = ["--method=afat,adl", "--objective.options.afat.ratio=0.25", "--objective.options.adl.weight=0.5"]
    assert (
        main(["train", "photos", *data, *SMALL, *methods, "--model.init=null", f"--out={out}", "--train.epochs=2"]) == 0
    )
    return out


def test_every_nested_value_has_a_path(trained):
    recipe = read_yaml((trained / "recipe.yaml").read_text(), name="recipe")
    assert recipe["objective"] == {"name": "robust", "options": {"afat": {"ratio": 0.25}, "adl": {"weight": 0.5}}}
    assert recipe["model"]["kwargs"] == {"depth": 1}


@pytest.mark.parametrize("method", [name for name in TERMS if name != "distillation"])  # that one needs a teacher
def test_every_method_trains_with_its_defaults(photos, tmp_path, method):
    data = [f"--data.train=folder:{photos}", f"--data.val=folder:{photos}"]
    asked = [*SMALL, f"--method={method}", "--model.init=null", f"--out={tmp_path / 'run'}", "--train.epochs=1"]
    assert main(["train", "photos", *data, *asked]) == 0
    recipe = read_yaml((tmp_path / "run" / "recipe.yaml").read_text(), name="recipe")
    assert recipe["objective"]["options"].keys() == {method}


def test_wrong_values_are_told(photos, capsys, tmp_path):
    assert main(["train", "photos", "--method=afat,ald", f"--out={tmp_path}"]) == 2
    assert "unknown method 'ald'; did you mean 'adl'" in capsys.readouterr().err
    assert main(["train", "photos", "--objective.optoins.afat=1", f"--out={tmp_path}"]) == 2
    assert "did you mean '--objective.options'" in capsys.readouterr().err


def test_the_runs_of_a_folder_are_a_table(trained, capsys):
    assert main(["runs", str(trained.parent)]) == 0
    told = capsys.readouterr().out
    assert "mine" in told
    assert "vit_nano" in told
    assert "finished" in told
    assert main(["runs", str(trained / "checkpoints")]) == 2
    assert "DIR must hold runs" in capsys.readouterr().err


def test_predictions_as_table_json_and_csv(trained, photos, capsys, tmp_path):
    command = ["predict", str(photos / "red"), str(photos / "blue/1.png"), f"--model={trained}", "--top=2"]
    assert main([*command, "--format=json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found) == 7
    assert {answer["class"] for answer in found[0]["answers"]} == {"red", "blue"}
    assert sum(answer["probability"] for answer in found[0]["answers"]) == pytest.approx(1)
    assert main([*command, "--format=csv", f"--out={tmp_path / 'p.csv'}"]) == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "p.csv").read_text())))
    assert (len(rows), rows[1]["rank"]) == (14, "2")
    assert main(command) == 0
    assert "%" in capsys.readouterr().out
    records = holdfast.evaluate(trained, f"folder:{photos}", "clean", workers=0, show=False)
    rows = dict(zip(records.cells["clean"].ids.tolist(), records.cells["clean"].predictions.tolist(), strict=True))
    by_name = {each.image: each.rows[0]["class"] for each in holdfast.predict(trained, [photos], top=1)}
    assert {str(photos / name): ("blue", "red")[number] for name, number in rows.items()} == by_name


def test_a_checkpoint_is_chosen_by_name_or_file(trained, photos, capsys):
    last, file = trained / "checkpoints" / "last", trained / "model.safetensors"
    best = load_model(f"run:{trained}@best")
    assert best.name == f"run:{trained}@best"
    stored = load_file(trained / "checkpoints" / "best" / "model.safetensors")
    assert all((value == stored[name]).all() for name, value in best.model.state_dict().items())
    assert last.exists()
    data = f"--data=folder:{photos}"
    for checkpoint in ("last", str(file)):
        assert main(["evaluate", str(trained), data, "--suite=clean", f"--checkpoint={checkpoint}", "--workers=0"]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(trained), data, "--checkpoint=bset"]) == 2
    assert "checkpoint must be best, last or a file, got 'bset'" in capsys.readouterr().err
    assert main(["evaluate", "--model=timm:vit_nano", data, "--checkpoint=best"]) == 2
    assert "--checkpoint needs a run's folder" in capsys.readouterr().err
