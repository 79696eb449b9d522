"""``--init``: what stays of the run that a run starts from, which weights are loaded, and what is said of it."""

import json

import pytest
import torch
from safetensors.torch import load_file

from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.training.initialize import start_model
from holdfast.training.loop import train
from holdfast.training.recipe import ModelRecipe
from holdfast.training.recipe_files import find_recipe, load_recipe, recipe_names
from tests.training.helpers import run, tiny
from tests.training.test_recipe_warnings import grey_folder, whole

SMALL = ["--data.workers=0", "--train.batch_size=4", "--train.epochs=1", "--schedule.warmup_epochs=0"]


def config(folder):
    return json.loads((folder / "config.json").read_text())


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A run at 48 px instead of the model's 32, with averaged weights, on three classes."""
    root = tmp_path_factory.mktemp("first")
    data = grey_folder(root / "data", seed=0, names=("2", "10", "7"))
    values = whole(data, data) | {"size": 48, "mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7], "crop_pct": 1.0}
    run(root / "run", data=values, train={"epochs": 1, "batch_size": 4, "ema": 0.5})
    return root / "run", data


def test_a_run_that_starts_from_another_keeps_its_size_normalisation_and_name(first, tmp_path, capsys):
    folder, data = first
    command = ["train", "finetune", "--init", f"run:{folder}", f"--data.train={data}", f"--data.val={data}", *SMALL]
    assert main([*command, "--model.kwargs.depth=1", f"--out={tmp_path / 'kept'}"]) == 0
    assert "training vit_nano on" in capsys.readouterr().err
    kept, old = config(tmp_path / "kept"), config(folder)
    for name in ("input_size", "mean", "std", "crop_pct"):
        assert kept["pretrained_cfg"][name] == old["pretrained_cfg"][name]
    assert kept["architecture"] == "vit_nano"
    assert kept["label_names"] == ["2", "7", "10"]
    assert main([*command, "--model.kwargs.depth=1", f"--out={tmp_path / 'told'}", "--data.size=32"]) == 0
    assert config(tmp_path / "told")["pretrained_cfg"]["input_size"] == [3, 32, 32]


def test_the_head_that_is_kept_keeps_the_order_of_its_classes(first, tmp_path):
    folder, data = first
    path = folder / "config.json"
    text = path.read_text()
    path.write_text(json.dumps(json.loads(text) | {"label_names": ["10", "2", "7"]}))  # as text, as before
    model = {"init": f"run:{folder}", "name": None}
    try:
        run(tmp_path / "kept", data=whole(data, data), model=model, train={"batch_size": 4})
        run(tmp_path / "new", data=whole(data, data), model=model | {"head": "new"}, train={"batch_size": 4})
    finally:
        path.write_text(text)
    assert config(tmp_path / "kept")["label_names"] == ["10", "2", "7"]
    assert config(tmp_path / "new")["label_names"] == ["2", "7", "10"]


def test_a_stopped_run_goes_on_with_the_order_in_which_it_began(first, tmp_path):
    _, data = first
    values = {"data": whole(data, data), "train": {"epochs": 2, "batch_size": 4}}
    run(tmp_path / "run", **values)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "run" / name).unlink()
    path = tmp_path / "run" / "checkpoints" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"label_names": ["7", "10", "2"]}))
    run(tmp_path / "run", resume=True, **values)
    assert config(tmp_path / "run")["label_names"] == ["7", "10", "2"]
    path.unlink()  # as an earlier version left it: names stood in the order of their text
    run(tmp_path / "run", resume=True, **values)
    assert config(tmp_path / "run")["label_names"] == ["10", "2", "7"]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A training checkpoint of timm's kind, with raw and averaged weights: zeros and ones."""
    path = tmp_path_factory.mktemp("file") / "both.pth.tar"
    state = start_model(ModelRecipe(name="vit_nano", kwargs={"depth": 1}), classes=10, size=None).state_dict()
    raw, ema = ({key: torch.full_like(value, level) for key, value in state.items()} for level in (0.0, 1.0))
    torch.save({"state_dict": raw, "state_dict_ema": ema}, path)
    return path


@pytest.mark.parametrize(
    ("asked", "level", "said"),
    [
        ([], 1, "starts from the averaged (EMA) weights of {}; use --init-weights raw for the others"),
        (["--init-weights=ema"], 1, "starts from the averaged (EMA) weights of {}"),
        (["--init-weights=raw"], 0, "starts from the raw weights of {}"),
    ],
)
def test_of_a_file_with_raw_and_averaged_weights_it_is_said_which_were_loaded(
    both, tmp_path, capsys, asked, level, said
):
    small = ["--model.name=vit_nano", "--model.kwargs.depth=1", "--data.train_subset=8", "--data.val_subset=8"]
    small += ["--data.train=digits", "--data.val=digits", "--model.frozen=[patch_embed]", "--train.batch_size=8"]
    command = ["train", "finetune", "--init", str(both), f"--out={tmp_path / 'run'}", *SMALL, *small, *asked]
    assert main(command) == 0
    assert said.format(both) in capsys.readouterr().err.splitlines()
    assert load_file(tmp_path / "run" / "model.safetensors")["patch_embed.proj.weight"].unique().tolist() == [level]


def test_of_a_run_the_raw_weights_are_those_of_its_last_checkpoint(first):
    folder, _ = first
    recipe = {"kwargs": {"depth": 1}, "init": f"run:{folder}"}
    files = {"auto": "model", "ema": "model", "raw": "checkpoints/last/model"}
    weights = {name: load_file(folder / f"{file}.safetensors")["head.weight"] for name, file in files.items()}
    assert not torch.equal(weights["ema"], weights["raw"])
    for name, wanted in weights.items():
        model = start_model(ModelRecipe(**recipe, init_weights=name), classes=3, size=48)
        assert torch.equal(model.head.weight, wanted)


def test_weights_that_are_not_there_are_refused(tmp_path):
    run(tmp_path / "run", train={"epochs": 1})
    model = {"name": None, "init": f"run:{tmp_path / 'run'}", "init_weights": "ema"}
    with pytest.raises(HoldfastError, match=r"holds no averaged \(EMA\) weights; omit --init-weights ema"):
        run(tmp_path / "other", model=model)
    with pytest.raises(HoldfastError, match="chooses among the weights of a file or run"):
        run(tmp_path / "other", model={"init_weights": "raw"})


def test_a_recipe_that_is_meant_to_start_from_weights_warns_without_them(first, tmp_path, caplog):
    folder, _ = first
    sentence = "the recipe expects pretrained weights, but this run starts from random ones; name them with --init"
    meant = tiny(model={"needs_init": True}, data={"size": 48})
    train(meant, out=tmp_path / "random", show=False)
    assert caplog.messages == [sentence]
    train(meant, out=tmp_path / "started", overrides={"model": {"init": f"run:{folder}"}}, show=False)
    train(tiny(), out=tmp_path / "plain", show=False)
    assert caplog.messages.count(sentence) == 1


@pytest.mark.parametrize("name", recipe_names())
def test_recipes_whose_text_asks_for_init_say_so_in_their_values(name):
    command = [line for line in find_recipe(name).read_text().splitlines() if line.startswith("#  ")]
    recipe = load_recipe(name)
    asks = any("--init " in line for line in command) and recipe.model.init is None
    assert recipe.model.needs_init == asks
