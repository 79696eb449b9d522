"""``holdfast evaluate``: what cannot be measured or written is one sentence."""

import numpy as np
import pytest

from holdfast.cli.main import main
from tests.evaluation.toys import colours


def test_output_that_cannot_be_written_is_one_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    np.savez(tmp_path / "data.npz", x=colours(3).images, y=colours(3).targets)
    arguments = ["evaluate", "--model", "python:tests.evaluation.toys:brightest", "--suite", "clean", "--workers", "0"]
    assert main([*arguments, "--data", f"npz:{tmp_path / 'data.npz'}", "--out", str(tmp_path / "file")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("holdfast: error: out must be a folder we can write to")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "needs either runs' folders or --model, got neither"),
        (["runs/x", "--model", "timm:resnet18"], "got both"),
        (["--model", "timm:resnet18"], "needs --data"),
        (["--model", "python:tests.evaluation.toys:brightest", "--data", "digit"], "unknown data 'digit'"),
        (
            ["--model", "python:tests.evaluation.toys:brightest", "--data", "digits"],
            "must have the 10 classes of 'digits', got 3",
        ),
        (["--limt", "3"], "did you mean '--limit'"),
    ],
    ids=str,
)
def test_bad_arguments_of_the_command(arguments, sentence, capsys, tmp_path, monkeypatch):
    assert main(["evaluate", *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
