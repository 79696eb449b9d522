"""Linear probes and LP-FT: the published arithmetic, and two phases in two run folders."""

import numpy as np
import pytest
from safetensors.torch import load_file
from sklearn.linear_model import LogisticRegression

from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.methods import CrossEntropy
from holdfast.models.factory import load_model
from holdfast.training.linear_probe import fit_probe, head_of
from holdfast.training.recipe_files import load_recipe, to_yaml
from tests.chaos.processes import run_group
from tests.training.helpers import assert_same_run, assert_same_weights, log_of, run, tiny
from tests.training.test_loop import StopsAt

LP_FT = {"train": {"epochs": 1, "probe": {}}}


def test_two_classes_share_one_vector_in_halves_and_missing_ones_have_zeros():
    regression = LogisticRegression()
    regression.coef_, regression.intercept_ = np.array([[0.7, -1.3]]), np.array([0.2])
    regression.classes_ = np.array([0, 2])
    weight, bias = head_of(regression, classes=3)
    logits = weight[[0, 2]] @ [1.5, 0.4] + bias[[0, 2]]
    assert float(np.exp(logits[1]) / np.exp(logits).sum()) == pytest.approx(0.6748052726, abs=6e-11)
    assert (weight[1], bias[1]) == (pytest.approx([0, 0]), 0)


def test_the_standardisation_is_folded_into_the_head_and_the_first_best_c_wins():
    random = np.random.default_rng(0)
    labels = np.arange(60) % 3
    features = 100 + 5 * (random.normal(size=(60, 4)) + 4 * np.eye(3, 4)[labels])
    probe = fit_probe(features, labels, features, labels, classes=3, c_values=(1.0, 10.0))
    scaled = (features - features.mean()) / features.std()
    alone = LogisticRegression(C=1.0, max_iter=200).fit(scaled, labels)
    np.testing.assert_allclose(features @ probe.weight.T + probe.bias, alone.decision_function(scaled), atol=1e-3)
    assert (probe.c, probe.accuracy) == (1.0, 100)
    with pytest.raises(HoldfastError, match="at least two classes"):
        fit_probe(features, labels * 0, features, labels, classes=3)


def test_lp_ft_is_two_runs_and_both_are_models(tmp_path, capsys):
    out = tmp_path / "run"
    run(out, **LP_FT)
    probe, tuned = out / "phase1-probe", out
    assert load_model(f"run:{probe}").classes == load_model(f"run:{tuned}").classes == tuple("0123456789")
    (scored,) = log_of(probe, "epoch")
    assert scored["top1"] > 0
    before, after = load_file(probe / "model.safetensors"), load_file(tuned / "model.safetensors")
    assert not (before["blocks.0.attn.qkv.weight"] == after["blocks.0.attn.qkv.weight"]).all()
    alone = tmp_path / "alone"
    run(alone, train={"epochs": 1, "probe": {"only": True}})
    assert_same_weights(alone / "model.safetensors", probe / "model.safetensors")
    assert not (alone / "checkpoints").exists()
    assert main(["runs", str(tmp_path)]) == 0
    assert "run/phase1-probe" in capsys.readouterr().out


def test_a_stopped_run_keeps_its_probe_and_resumes_to_the_same_bits(tmp_path):
    run(tmp_path / "whole", **LP_FT)
    assert run(tmp_path / "parts", objective=StopsAt(2, CrossEntropy()), **LP_FT).stopped_by
    written = (tmp_path / "parts/phase1-probe/model.safetensors").stat().st_mtime_ns
    run(tmp_path / "parts", resume=True, **LP_FT)
    assert (tmp_path / "parts/phase1-probe/model.safetensors").stat().st_mtime_ns == written
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_the_published_second_phase_keeps_batch_statistics(tmp_path):
    values = {
        "model": {"name": "test_resnet"},
        "data": {"size": 32, "train_subset": 40, "val_subset": 20, "workers": 0},
    }
    train = {"epochs": 1, "batch_size": 20, "device": "cpu", "probe": {}}
    from holdfast.training.loop import train as train_recipe

    train_recipe({**values, "train": train}, out=tmp_path / "run", show=False)
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("run/phase1-probe", "run"))
    kept = [key for key in before if "running_" in key]
    assert kept
    assert all((before[key] == after[key]).all() for key in kept)


def test_the_dry_run_counts_the_looks_of_the_probe(tmp_path, capsys):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(to_yaml(load_recipe(tiny(**LP_FT))))
    assert main(["train", str(recipe), "--out", str(tmp_path / "run"), "--dry-run"]) == 0
    assert "linear probe looks at 84 images first" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()


def test_two_processes_start_from_one_probe(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(to_yaml(load_recipe(tiny(**LP_FT))))
    command = ["train", str(recipe), "--out", str(tmp_path / "two"), "--train.batch_size=8"]
    ends = run_group(command, folder=tmp_path)
    assert [code for code, _ in ends] == [0, 0], ends
    (end,) = log_of(tmp_path / "two", "end")
    assert (end["processes"], end["processes_agree"]) == (2, True)
