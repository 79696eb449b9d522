"""From a request to a plan: opens model and images, times both, and divides the budget."""

import re

import pytest

from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.improvement.prepare import model_values


def test_models_that_cannot_be_trained_are_refused():
    with pytest.raises(HoldfastError, match="has no gradients"):
        model_values("onnx:model.onnx")
    assert model_values("timm:vit_tiny@a.pth") == {"name": "vit_tiny", "init": "a.pth"}
    assert model_values("timm:vit_tiny") == {"name": None, "init": "timm:vit_tiny"}


QUICK = [
    "improve",
    "digits/vit_nano",
    "--data.workers=0",
    "--data.train_subset=40",
    "--train.batch_size=20",
    "--train.device=cpu",
    "--model.kwargs.depth=1",
]


def test_a_dry_run_shows_the_plan_and_writes_nothing(tmp_path, capsys):
    words = [*QUICK, "--methods=low-lr,lp-ft", "--budget=1h", "--out", str(tmp_path / "out")]
    assert main([*words, "--data.test=digits:test", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("2 candidates: plain, low-lr\n")
    assert re.search(r"chosen by: 148 .*corruptions that are not reported \(clean, selection\)", shown)
    assert "reported: 296 images of digits:test, clean, corruptions-135" in shown
    assert "not lp-ft: a linear probe needs a pretrained model" in shown
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--budget=soon"], "--budget must be a wall time such as 10m"),
        (["--budget=1s", "--methods=low-lr"], "--budget must be at least about"),
        (["--budget=1h", "--methods=augmics"], "got 'augmics'; did you mean 'augmix'?"),
        (["--budget=1h", "--methods=lp-ft"], "there must be a candidate beside plain training, got none"),
    ],
)
def test_what_cannot_be_planned_is_refused_and_nothing_is_written(tmp_path, capsys, words, sentence):
    assert main([*QUICK, *words, "--out", str(tmp_path / "out")]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()
