"""``holdfast evaluate`` as people use it, through the real command line."""

import os
import signal

import numpy as np
import pytest

from holdfast import evaluate
from holdfast.cli.main import main
from holdfast.records.records import load_records
from tests.chaos.processes import run_group, start, until
from tests.evaluation.test_runner import assert_same
from tests.evaluation.toys import brightest, colours, slow
from tests.training.helpers import run


@pytest.fixture
def npz(tmp_path):
    source = colours(12)
    np.savez(tmp_path / "colours.npz", x=source.images, y=source.targets, classes=np.array(source.classes))
    return f"npz:{tmp_path / 'colours.npz'}"


def command(model, npz, out, *, suites="clean,corruptions,fgsm"):
    return [
        *("holdfast", "evaluate", "--model", f"python:tests.evaluation.toys:{model}", "--data", npz),
        *("--suite", suites, "--out", str(out), "--batch-size", "12", "--workers", "1"),
    ]


def test_an_evaluation_killed_at_a_random_moment_continues_to_the_same_records(tmp_path, npz):
    wanted = int(np.random.default_rng().integers(2, 60))  # of 77 units; any of them must do
    with start(command("slow", npz, tmp_path / "killed")[1:], output=tmp_path / "told") as process:
        assert until(lambda: len(list((tmp_path / "killed").rglob("*.*.safetensors"))) >= wanted, 120), process.told()
        assert process.running(), process.told()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    (cut,) = load_records(tmp_path / "killed")
    assert len(cut.cells) < 77

    assert main(command("slow", npz, tmp_path / "killed")[1:]) == 0
    whole = evaluate(slow(), npz, "clean,corruptions,fgsm", out=tmp_path / "whole", workers=0, show=False)
    (records,) = load_records(tmp_path / "killed")
    assert_same(records.only(list(whole.cells)), whole, but=("model",))
    assert records.incomplete == {}


def test_two_processes_make_the_records_of_one(tmp_path, npz):
    ends = run_group(command("brightest", npz, tmp_path / "two", suites="clean,corruptions,fgsm")[1:], folder=tmp_path)
    assert [code for code, _ in ends] == [0, 0], ends
    assert "".join(told for _, told in ends).count("records:") == 1
    one = evaluate(brightest(), npz, "clean,corruptions,fgsm", workers=0, show=False)
    (two,) = load_records(tmp_path / "two")
    assert_same(two.only(list(one.cells)), one, but=("model",))


def test_a_run_is_evaluated_on_its_own_data_and_gets_its_records(tmp_path, capsys):
    run(tmp_path / "run")
    capsys.readouterr()
    arguments = ["evaluate", str(tmp_path / "run"), "--suite", "clean,pgd5", "--limit", "20", "--workers", "0"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "data: digits:test (from the run's recipe)" in out
    assert "pgd5" in out
    (records,) = load_records(tmp_path / "run")
    assert f"records: {records.folder}" in out
    assert list(records.cells) == ["clean", "pgd5"]
    assert records.header["architecture"] == "vit_nano"
    assert records.header["preprocessing"]["model_size"] == "short side 32 bicubic, centre crop 32×32"
    assert main([*arguments, "--fresh"]) == 0
    assert len(load_records(tmp_path / "run")) == 1


def test_list_suites_names_them_all(capsys):
    from holdfast.evaluation.suites import SUITES

    assert main(["list", "suites"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in SUITES)
