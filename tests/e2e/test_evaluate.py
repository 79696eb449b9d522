"""``holdfast evaluate`` as people use it, through the real command line."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from holdfast import evaluate
from holdfast.cli.main import main
from holdfast.records.records import load_records
from tests.evaluation.test_runner import assert_same
from tests.evaluation.toys import brightest, colours, slow
from tests.training.helpers import run

PYTHON = sys.executable


@pytest.fixture
def npz(tmp_path):
    source = colours(12)
    np.savez(tmp_path / "colours.npz", x=source.images, y=source.targets, classes=np.array(source.classes))
    return f"npz:{tmp_path / 'colours.npz'}"


def start(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([PYTHON, "-m", *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def command(model, npz, out, *, suites="clean,corruptions,fgsm"):
    return [
        *("holdfast", "evaluate", "--model", f"python:tests.evaluation.toys:{model}", "--data", npz),
        *("--suite", suites, "--out", str(out), "--batch-size", "12", "--workers", "1"),
    ]


def test_an_evaluation_killed_at_a_random_moment_continues_to_the_same_records(tmp_path, npz):
    process = start(*command("slow", npz, tmp_path / "killed"))
    wanted = int(np.random.default_rng().integers(2, 60))  # of 77 units; any of them must do
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if len(list((tmp_path / "killed").rglob("*.*.safetensors"))) >= wanted:
            break
        time.sleep(0.005)
    assert process.poll() is None, process.stderr.read()
    process.kill()
    process.wait()
    (cut,) = load_records(tmp_path / "killed")
    assert len(cut.cells) < 77

    assert main(command("slow", npz, tmp_path / "killed")[1:]) == 0
    whole = evaluate(slow(), npz, "clean,corruptions,fgsm", out=tmp_path / "whole", workers=0, show=False)
    (records,) = load_records(tmp_path / "killed")
    assert_same(records.only(list(whole.cells)), whole, but=("model",))
    assert records.incomplete == {}


def test_two_processes_make_the_records_of_one(tmp_path, npz):
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    process = start(*launcher, *command("brightest", npz, tmp_path / "two", suites="clean,corruptions,fgsm"))
    out, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors.decode()
    assert out.decode().count("records:") == 1
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
