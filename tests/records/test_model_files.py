"""Records of a run belong to its present weights, or are left out and named."""

import json
import logging

import pytest
from safetensors.numpy import load_file, save_file

from holdfast import evaluate
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.gate import paired_scores_of
from holdfast.records.model_files import model_files_digest
from holdfast.reporting.runs import read_runs
from tests.training.helpers import run

QUICK = {"suites": "clean", "limit": 60, "workers": 0, "show": False}


@pytest.fixture
def measured(tmp_path):
    folder = run(tmp_path / "run", model={"kwargs": {"depth": 2}}).folder
    evaluate(str(folder), "digits:test", **QUICK)
    return folder


def train_on(folder):
    """As after more training: other weights, the same configuration."""
    path = folder / "model.safetensors"
    save_file({name: values + 1 for name, values in load_file(path).items()}, path)


def test_the_gate_refuses_records_of_earlier_weights(measured, tmp_path, capsys):
    baseline = str(tmp_path / "baseline.json")
    assert main(["gate", str(measured), "--save", baseline]) == 0
    assert main(["gate", str(measured), "--against", baseline]) == 0
    train_on(measured)
    assert main(["gate", str(measured), "--against", baseline]) == 2
    assert "config.json or model.safetensors has changed" in capsys.readouterr().err
    assert main(["gate", str(next((measured / "records").iterdir())), "--against", baseline]) == 0


def test_earlier_records_are_left_out_beside_new_ones_and_named(measured, caplog):
    (before,) = paired_scores_of(measured)
    train_on(measured)
    evaluate(str(measured), "digits:test", **QUICK)
    with caplog.at_level(logging.WARNING):
        (now,) = paired_scores_of(measured)
    assert now.header["model_fingerprint"] != before.header["model_fingerprint"]
    assert "measured with earlier weights of the run" in caplog.text
    (shown,) = read_runs([measured])
    assert any("measured with earlier weights of the run" in note for note in shown.notes)


def test_a_configuration_written_otherwise_and_records_elsewhere_are_no_change(measured, tmp_path):
    path = measured / "config.json"
    path.write_text(json.dumps(dict(reversed(json.loads(path.read_text()).items())), indent=4))
    assert len(paired_scores_of(measured)) == 1
    evaluate(str(measured), "digits:test", out=tmp_path / "elsewhere", **QUICK)
    train_on(measured)
    assert len(paired_scores_of(tmp_path / "elsewhere")) == 1
    with pytest.raises(HoldfastError, match="must be of its present weights"):
        paired_scores_of(measured)


def test_records_of_a_checkpoint_are_not_the_final_weights(measured):
    evaluate(f"run:{measured}@last", "digits:test", **QUICK)
    train_on(measured)
    (left,) = paired_scores_of(measured)
    assert "model_files" not in left.header


def test_folders_without_a_model_have_no_digest(tmp_path):
    assert model_files_digest(tmp_path) == ""
