"""``holdfast mix``: WiSE-FT and soups of runs, as run folders that every command takes."""

import json
import logging

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from timm.models._hub import save_for_hf

import holdfast
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.models.factory import load_model
from holdfast.training.loop import train
from tests.training.helpers import TINY, assert_same_weights, log_of, run

# a timm model with BatchNorm
NORMS = {**TINY, "model": {"name": "test_resnet"}, "schedule": {"warmup_epochs": 0}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A start, and two runs that were fine-tuned from it; and two networks with BatchNorm."""
    folder = tmp_path_factory.mktemp("mix")
    run(folder / "start", train={"epochs": 1})
    for seed in (1, 2):
        run(folder / f"tuned{seed}", seed=seed, model={"init": f"run:{folder / 'start'}"}, train={"epochs": 1})
    for seed in (1, 2):
        train({**NORMS, "seed": seed, "data": {**TINY["data"], "size": 32}}, out=folder / f"norms{seed}", show=False)
    return folder


def weights(folder):
    return load_file(folder / "model.safetensors")


def test_wise_ft_is_a_run_that_knows_its_parents(runs, tmp_path, capsys):
    out = tmp_path / "wise"
    assert main(["mix", str(runs / "start"), str(runs / "tuned1"), "--out", str(out), "--validate"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "0.5 · run:" in said
    assert "top1" in said
    start, tuned, mixed = (weights(folder) for folder in (runs / "start", runs / "tuned1", out))
    for key, value in mixed.items():
        torch.testing.assert_close(value, ((start[key].double() + tuned[key].double()) / 2).to(value), rtol=0, atol=0)
    recipe = yaml.safe_load((out / "recipe.yaml").read_text())
    assert recipe["model"]["mix"]["parents"] == [f"run:{runs / 'start'}", f"run:{runs / 'tuned1'}"]
    assert load_model(f"run:{out}").classes == tuple("0123456789")
    assert main(["runs", str(tmp_path)]) == 0
    assert "finished" in capsys.readouterr().out
    options = ["--data", "digits:test", "--limit", "10", "--suite", "clean", "--workers", "0", "--device", "cpu"]
    assert main(["evaluate", str(out), *options]) == 0
    assert main(["report", str(out), "--out", str(tmp_path / "report.html")]) == 0
    assert main(["card", str(out), "--out", str(tmp_path / "card")]) == 0
    again = train(out / "recipe.yaml", out=tmp_path / "again", show=False)  # the recipe is runnable
    assert_same_weights(again.folder / "model.safetensors", out / "model.safetensors")


def test_several_alphas_are_several_runs_and_the_ends_are_the_parents(runs, tmp_path):
    out = tmp_path / "curve"
    assert main(["mix", str(runs / "start"), str(runs / "tuned1"), "--alpha", "0:1:0.5", "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["alpha-0", "alpha-0.5", "alpha-1"]
    assert_same_weights(out / "alpha-0" / "model.safetensors", runs / "start" / "model.safetensors")
    assert_same_weights(out / "alpha-1" / "model.safetensors", runs / "tuned1" / "model.safetensors")


def test_a_checkpoint_of_a_run_is_a_parent_too(runs, tmp_path):
    (mixed,) = holdfast.mix(runs / "start", f"run:{runs / 'tuned1'}@best", alpha=1, out=tmp_path / "best")
    assert_same_weights(mixed.folder / "model.safetensors", runs / "tuned1/checkpoints/best/model.safetensors")


def test_soups_are_uniform_or_greedy_on_validation_images(runs, tmp_path):
    names = ("start", "tuned1", "tuned2")
    (uniform,) = holdfast.mix(*(runs / name for name in names), out=tmp_path / "uniform", soup="uniform")
    assert [*uniform.weights.values()] == pytest.approx([1 / 3] * 3)
    mean = torch.stack([weights(runs / name)["head.weight"].double() for name in names]).mean(dim=0).float()
    assert torch.equal(weights(uniform.folder)["head.weight"], mean)
    for rule in ("released", "paper"):
        (greedy,) = holdfast.mix(
            *(runs / name for name in names), out=tmp_path / rule, soup="greedy", greedy=rule, validate=True
        )
        (noted,) = log_of(greedy.folder, "mix")
        assert len(noted["tried"]) == 3
        assert greedy.scores["top1"] == noted["score"] >= max(noted["scores"])


def test_batch_statistics_are_estimated_anew_except_at_the_ends(runs, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        middle, end = holdfast.mix(runs / "norms1", runs / "norms2", alpha=[0.5, 1], out=tmp_path / "norms")
    assert "did not start from the same weights" in caplog.text
    first, second, mixed = (weights(folder) for folder in (runs / "norms1", runs / "norms2", middle.folder))
    key = next(key for key in mixed if key.endswith("running_var"))
    assert not torch.allclose(mixed[key], (first[key] + second[key]) / 2)
    assert mixed[key].isfinite().all()
    assert_same_weights(end.folder / "model.safetensors", runs / "norms2" / "model.safetensors")


def test_a_start_with_another_head_gets_that_of_a_linear_probe(runs, tmp_path, caplog):
    other = tmp_path / "other-classes"  # the same weights below a head for three classes
    model = holdfast.create_model("vit_nano", depth=1, num_classes=3)
    body = {key: value for key, value in weights(runs / "start").items() if not key.startswith("head.")}
    model.load_state_dict(body, strict=False)
    save_for_hf(model, str(other), model_args={"depth": 1}, safe_serialization=True)
    with caplog.at_level(logging.WARNING):
        (mixed,) = holdfast.mix(f"local-dir:{other}", runs / "tuned1", alpha=0.0, out=tmp_path / "mixed", validate=True)
    assert "gets a linear probe's" in caplog.text
    assert weights(mixed.folder)["head.weight"].shape == (10, 96)
    assert f"{mixed.scores['top1']:.2f} % in validation" in caplog.text  # at α = 0 the probe itself


@pytest.mark.parametrize(
    ("models", "options", "sentence"),
    [
        (("start",), {}, "at least two models"),
        (("start", "tuned1", "tuned2"), {}, "--soup uniform or greedy takes several"),
        (("start", "norms1"), {}, "same architecture"),
        (("start", "missing"), {}, "missing"),
        (("start", "tuned1"), {"soup": "stew"}, "uniform or greedy"),
        (("start", "tuned1"), {"alpha": 1.5}, "between 0 and 1"),
        (("start", "tuned1"), {"soup": "greedy", "val": "digits:test"}, "never on a test set"),
        (("start", "tuned1"), {"soup": "greedy", "train": "digits:val"}, "no ingredient was trained on"),
    ],
)
def test_what_cannot_be_mixed_gets_one_sentence_and_leaves_nothing(models, options, sentence, runs, tmp_path):
    with pytest.raises(HoldfastError, match=sentence):
        holdfast.mix(*(runs / name for name in models), out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_classes_in_another_order_are_refused(runs, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    config = json.loads((runs / "start" / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"label_names": list("1023456789")}))
    save_file(weights(runs / "start"), other / "model.safetensors")
    with pytest.raises(HoldfastError, match="same classes in the same order"):
        holdfast.mix(other, runs / "tuned1", out=tmp_path / "out")


def test_a_dry_run_checks_the_models_and_writes_nothing(runs, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = [str(runs / "start"), str(runs / "tuned1"), "--out", str(out), "--alpha", "0:1:0.25", "--dry-run"]
    assert main(["mix", *arguments]) == 0
    assert "5 run folders" in capsys.readouterr().out
    assert not out.exists()
