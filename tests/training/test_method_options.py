"""Every method of ``--method`` trains digits with its defaults, alone and in sums, or is refused in a sentence."""

import pytest
import yaml

from holdfast.cli.main import main
from holdfast.training.method_options import method_values
from tests.training.helpers import log_of, run

SHORT = ["--data.train_subset=32", "--data.val_subset=10", "--data.workers=0", "--train.epochs=1", "--train.device=cpu"]
SHORT += ["--train.batch_size=16", "--train.log_steps=1", "--schedule.warmup_epochs=0"]
FIGURES = {
    "augmix": "jensen_shannon",
    "trades": "trades_kl",
    "mart": "mart_kl",
    "sam": "sharpness",
    "asam": "sharpness",
    "lp-ft": "cross_entropy",
    "augmix,afat": "alignment",
    "lp-ft,sam,augmix": "jensen_shannon",
}


@pytest.mark.parametrize("method", FIGURES)
def test_a_method_trains_digits_with_its_defaults(method, tmp_path):
    out = tmp_path / "run"
    small = ["--model.kwargs.depth=1"]
    assert main(["train", "digits/fan_nano", "--method", method, "--out", str(out), *SHORT, *small]) == 0
    lines = log_of(out, "step")
    assert lines
    assert all(FIGURES[method] in line for line in lines)
    assert log_of(out, "end")


def test_a_linear_probe_is_a_method_by_itself(tmp_path):
    assert main(["train", "digits/vit_nano", "--method", "linear-probe", "--out", str(tmp_path / "run"), *SHORT]) == 0
    assert log_of(tmp_path / "run", "epoch")[0]["top1"] >= 0


def test_what_is_given_beside_a_method_counts_and_augmix_replaces_rand_augment():
    values = method_values("augmix,sam", {"optimizer": {"sam": {"rho": 0.2}}})
    assert values["optimizer"]["sam"] == {"rho": 0.2}
    assert values["augment"]["rand_augment"] is None
    assert values["objective"] == {"name": "robust", "options": {"augmix": {}}}


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("sam,asam", "one of sam, asam"),
        ("trades,adversarial", "one of adversarial, trades, mart"),
        ("tora,afat", "goes with none of the others"),
        ("linear-probe,sam", "goes with none of the others"),
        ("agumix", "did you mean 'augmix'"),
    ],
)
def test_what_does_not_go_together_is_refused(method, sentence, tmp_path, capsys):
    assert main(["train", "digits/vit_nano", "--method", method, "--out", str(tmp_path / "run")]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_tora_adapts_ones_own_vit_and_its_parts_are_found(tmp_path, capsys):
    """By ``--init`` alone: neither the model's name nor its arguments are said again."""
    vit, out = tmp_path / "runs" / "vit", tmp_path / "runs" / "tora"
    run(vit, model={"kwargs": {"depth": 2, "patch_size": 8}}, train={"epochs": 1})
    values = ["--objective.options.steps=1", "--train.phases.weights=[0.2,0.8]"]
    capsys.readouterr()
    command = ["train", "finetune", "--method", "tora", "--init", f"run:{vit}", "--out", str(out)]
    assert main([*command, "--data.train=digits", "--data.val=digits", *SHORT, *values]) == 0
    said = capsys.readouterr().err
    assert "with tora, phase robust," in said
    assert "with tora, phase joint, λ 0.8," in said
    folder = said.strip().splitlines()[-1].rpartition(": ")[2]
    assert folder == str(out / "lambda-0.8")
    assert main(["runs", str(tmp_path / "runs")]) == 0
    table = capsys.readouterr().out
    assert "not begun" not in table
    assert all(name in table for name in ("tora/phase1-robust", "tora/lambda-0.2", "tora/lambda-0.8"))
    for weight in ("0.2", "0.8"):
        options = ["--data", "digits:test", "--limit", "10", "--suite", "clean", "--workers", "0", "--device", "cpu"]
        assert main(["evaluate", str(out / f"lambda-{weight}"), *options]) == 0
    page = tmp_path / "report.html"
    assert main(["report", str(out), "--out", str(page)]) == 0
    assert "λ 0.2, joint" in page.read_text(encoding="utf-8")
    assert yaml.safe_load((out / "lambda-0.2" / "recipe.yaml").read_text())["model"]["adapt"]["name"] == "tora"
