"""TORA's phases as runs: one phase 1 for every λ, folders that load by themselves, exact resume, bad input."""

import json

import pytest
import torch
from safetensors.torch import load_file

from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.models.factory import load_model
from holdfast.models.tora_checkpoints import load_tora
from holdfast.training.loop import train
from holdfast.training.recipe_files import load_recipe
from tests.training.helpers import log_of, run
from tests.training.test_loop import StopsAt

SHORT = {
    "data": {"train_subset": 32, "val_subset": 10, "workers": 0},
    "train": {"epochs": 1, "batch_size": 16, "device": "cpu", "log_steps": 1},
    "schedule": {"warmup_epochs": 0},
    "objective": {"options": {"steps": 1}},
}


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vit") / "run"
    run(folder, train={"epochs": 1})
    return folder


def tora(vit, out, *, resume=False, objective=None, train_values=None, adapt=None, **phases):
    overrides = SHORT | {
        "model": {"init": f"run:{vit}", "kwargs": {"depth": 1}, "adapt": adapt or {}},
        "train": SHORT["train"] | (train_values or {}) | {"phases": {"first_epochs": 1, **phases}},
    }
    return train("digits/tora_vit_nano", out=out, overrides=overrides, resume=resume, objective=objective, show=False)


@pytest.fixture(scope="module")
def chain(vit, tmp_path_factory):
    out = tmp_path_factory.mktemp("tora") / "chain"
    tora(vit, out, weights=[0.1, 0.9])
    return out


def changed(before, after) -> set[str]:
    old, new = (load_file(folder / "tora.safetensors") for folder in (before, after))
    return {
        key.split(".")[2] if key.startswith("layers") else key for key in old if not torch.equal(old[key], new[key])
    }


def test_one_phase_1_serves_every_lambda(chain):
    assert sorted(path.name for path in chain.iterdir()) == [
        "lambda-0.1",
        "lambda-0.9",
        "phase1-accuracy",
        "phase1-robust",
        "recipe.yaml",
    ]
    assert changed(chain / "phase1-robust", chain / "phase1-accuracy") == {
        "acc",
        "fusion",
        "tokens.acc",
        "heads.acc.weight",
        "heads.acc.bias",
    }
    for weight in ("0.1", "0.9"):
        assert changed(chain / "phase1-accuracy", chain / f"lambda-{weight}") == {"fusion"}
    assert changed(chain / "lambda-0.1", chain / "lambda-0.9") == {"fusion"}
    recipe = load_recipe(chain / "lambda-0.9" / "recipe.yaml")
    assert (recipe.train.phases.run, recipe.train.phases.weights) == ("joint", [0.9])
    assert recipe.model.adapt.start == str(chain / "phase1-accuracy")
    assert json.loads((chain / "lambda-0.9" / "tora.json").read_text())["notes"]["lambdas"] == [0.9]


def test_the_section_tora_of_before_is_an_unknown_key():
    with pytest.raises(HoldfastError, match="unknown recipe key 'tora'"):
        load_recipe({"objective": {"name": "tora"}, "tora": {"lambdas": [0.5]}})


def test_losses_of_each_phase_are_in_its_log(chain):
    seen = {folder: set(log_of(chain / folder, "step")[-1]) for folder in ("phase1-robust", "phase1-accuracy")}
    assert "adversarial_cross_entropy" in seen["phase1-robust"] - seen["phase1-accuracy"]
    assert "clean_cross_entropy" in seen["phase1-accuracy"] - seen["phase1-robust"]
    last = log_of(chain / "lambda-0.9", "step")[-1]
    mixed = 0.9 * last["adversarial_cross_entropy"] + 0.1 * last["clean_cross_entropy"]
    assert last["loss"] == pytest.approx(mixed, rel=1e-5)


def test_a_runs_folder_loads_by_itself_with_three_predictions(chain, vit):
    loaded = load_model(f"run:{chain / 'lambda-0.9'}")
    images = torch.randn(2, 3, 32, 32)
    views = loaded.model.eval().views(images)
    assert list(views) == ["joint", "acc", "rob"]
    assert loaded.model.pretrained_cfg["input_size"] == (3, 32, 32) or loaded.model.pretrained_cfg["input_size"] == [
        3,
        32,
        32,
    ]
    frozen, pretrained = loaded.model.backbone.state_dict(), load_file(vit / "model.safetensors")
    assert all(torch.equal(frozen[key], pretrained[key]) for key in pretrained)
    assert torch.equal(load_tora(chain / "lambda-0.9")(images), views["joint"])
    assert load_model(str(chain / "lambda-0.1")).folder == chain / "lambda-0.1"


def test_a_lambda_can_be_added_later_without_a_new_phase_1(vit, tmp_path):
    out = tmp_path / "chain"
    tora(vit, out, weights=[0.1])
    trained = (out / "phase1-accuracy" / "checkpoints" / "last" / "model.safetensors").stat().st_mtime_ns
    tora(vit, out, weights=[0.1, 0.7], resume=True)
    assert (out / "phase1-accuracy" / "checkpoints" / "last" / "model.safetensors").stat().st_mtime_ns == trained
    assert (out / "lambda-0.7" / "tora.json").exists()
    assert load_recipe(out / "recipe.yaml").train.phases.weights == [0.1, 0.7]


@pytest.mark.parametrize("method", ["adapter-fusion", "single-adapter", "head-only"])
def test_the_methods_to_compare_with_train_and_load(method, vit, tmp_path):
    out = tmp_path / method
    tora(vit, out, adapt={"name": method}, weights=[0.5])
    assert (out / "phase1-robust").exists() is (method == "adapter-fusion")
    model = load_tora(out / "lambda-0.5")
    assert list(model.views(torch.randn(1, 3, 32, 32))) == list(model.view_names)


def test_a_stopped_phase_resumes_to_the_same_bits(chain, vit, tmp_path):
    from holdfast.methods.tora import tora_objective

    def objective():
        return tora_objective(phase="joint", trade_off=0.5, mean=(0.5,) * 3, std=(0.5,) * 3, steps=1)

    joint = {"run": "joint", "weights": [0.5], "adapt": {"start": str(chain / "phase1-accuracy")}}
    longer = {"epochs": 2, "ema": 0.9}
    tora(vit, tmp_path / "whole", objective=objective(), train_values=longer, **joint)
    stopped = tora(vit, tmp_path / "parts", objective=StopsAt(3, objective()), train_values=longer, **joint)
    assert stopped.stopped_by
    tora(vit, tmp_path / "parts", objective=objective(), train_values=longer, resume=True, **joint)
    last = "checkpoints/last"
    for file in (
        "tora.safetensors",
        f"{last}/model.safetensors",
        f"{last}/ema.safetensors",
        f"{last}/optimizer.safetensors",
    ):
        one, other = (load_file(tmp_path / name / file) for name in ("whole", "parts"))
        assert all(torch.equal(one[key], other[key]) for key in one)
    one, other = ((tmp_path / name / "backbone/config.json").read_bytes() for name in ("whole", "parts"))
    assert one == other
    arguments = json.loads(one)["model_args"]
    assert list(arguments) == sorted(arguments)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--train.phases.weights=[0.5,1.5]"],
            "train.phases.weights must be a list of weights between 0 and 1, got [0.5, 1.5]",
        ),
        (
            ["--train.phases.weights=[-0.1]"],
            "train.phases.weights must be a list of weights between 0 and 1, got [-0.1]",
        ),
        (["--train.phases.weights=[]"], "train.phases.weights must hold at least one weight"),
        (
            ["--train.phases.run=joint", "--train.phases.weights=[0.5]"],
            "model.adapt.start must be the run folder of phase 1",
        ),
        (
            ["--train.phases.run=joint", "--train.phases.weights=[0.5]", "--model.adapt.start=nowhere"],
            "model.adapt.start must be the folder of a finished phase-1 run, got 'nowhere'",
        ),
        (
            ["--train.phases.run=joint", "--model.adapt.start={start}"],
            "train.phases.weights must hold one weight for phase joint",
        ),
        (
            [
                "--train.phases.run=joint",
                "--train.phases.weights=[0.5]",
                "--model.adapt.start={start}",
                "--model.adapt.options={{reduction: 8}}",
            ],
            "were made with",
        ),
        (["--model.name=fan_nano", "--model.init=null", "--init={fan}"], "TORA needs a plain ViT or DeiT"),
        (["--model.init=null"], "model.init must name the pretrained model to adapt"),
        (
            ["--objective.name=robust", "--objective.options={{}}"],
            "must be one that trains in phases (tora), got 'robust'",
        ),
        (["--objective.options={{eps: -1}}"], "eps must be 0 or more"),
        (
            ["--train.phases.run=robus"],
            "train.phases.run must be all or one of robust, accuracy, joint, got 'robus'; did you",
        ),
        (["--model.adapt.name=torah"], "model.adapt.name must be a registered adaptation method, got 'torah'; did you"),
        (["--model.adapt.options={{gates: 2}}"], "unknown option 'gates' of model.adapt 'tora'"),
    ],
)
def test_bad_input_gets_one_sentence_and_leaves_nothing(arguments, sentence, chain, vit, tmp_path, capsys):
    import timm
    from safetensors.torch import save_file

    fan = tmp_path / "fan.safetensors"
    if any("{fan}" in argument for argument in arguments):
        save_file(timm.create_model("fan_nano", depth=1).state_dict(), fan)
    given = [argument.format(start=chain / "phase1-accuracy", fan=fan) for argument in arguments]
    common = [
        "--data.train_subset=32",
        "--train.batch_size=16",
        "--data.workers=0",
        "--train.device=cpu",
        "--model.kwargs={depth: 1}",
    ]
    start = [] if any("model.init" in argument for argument in arguments) else ["--init", f"run:{vit}"]
    out = tmp_path / "run"
    assert main(["train", "digits/tora_vit_nano", *common, *start, *given, "--out", str(out)]) == 2
    assert sentence in capsys.readouterr().err
    assert not out.exists()


def test_adapters_of_another_width_are_refused(chain, tmp_path, capsys):
    wide = tmp_path / "wide"
    run(wide, train={"epochs": 1}, model={"kwargs": {"depth": 1, "embed_dim": 64}})
    arguments = [
        "--init",
        f"run:{wide}",
        "--model.kwargs={depth: 1, embed_dim: 64}",
        "--data.train_subset=32",
        "--train.batch_size=16",
    ]
    phase = [
        "--train.phases.run=joint",
        "--train.phases.weights=[0.5]",
        f"--model.adapt.start={chain / 'phase1-accuracy'}",
    ]
    out = tmp_path / "run"
    assert main(["train", "digits/tora_vit_nano", *arguments, *phase, "--out", str(out)]) == 2
    assert "belong to a ViT of another width, depth or class count" in capsys.readouterr().err
    assert not out.exists()


def test_a_finished_chain_is_not_overwritten(chain, vit, capsys):
    argv = ["train", "digits/tora_vit_nano", "--init", f"run:{vit}", "--out", str(chain)]
    assert main(argv) == 2
    assert "already holds a run; add --resume" in capsys.readouterr().err


def test_a_plain_model_cannot_be_trained_with_the_objective(tmp_path, capsys):
    assert main(["train", "digits/vit_nano", "--objective.name=tora", "--out", str(tmp_path / "run")]) == 2
    assert "objective 'tora' needs phase and trade_off: use it in a recipe with model.adapt" in capsys.readouterr().err


def test_the_same_run_twice_gives_the_same_bits(chain, vit, tmp_path):
    tora(vit, tmp_path / "again", run="robust", weights=[])
    one, other = (load_file(folder / "tora.safetensors") for folder in (chain / "phase1-robust", tmp_path / "again"))
    assert all(torch.equal(one[key], other[key]) for key in one)
