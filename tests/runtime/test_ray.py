"""What is wrong with ``--on ray`` is said in one sentence, with Ray or without."""

import importlib.util
import socket

import pytest
from PIL import Image

from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.runtime.ray import Cluster, check_reachable, parse_on


@pytest.fixture
def without_ray(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else found(name, *rest))


@pytest.mark.parametrize("command", ["evaluate", "corrupt"])
def test_without_the_extra_the_line_that_installs_it_is_named(command, without_ray, tmp_path, capsys):
    (tmp_path / "a").mkdir()
    words = {
        "evaluate": ["--model", "python:tests.evaluation.toys:brightest", "--data", "digits"],
        "corrupt": [str(tmp_path / "a"), str(tmp_path / "b")],
    }
    assert main([command, *words[command], "--on", "ray"]) == 2
    assert "pip install ray" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--on", "slurm"], "--on must be ray, or ray=ADDRESS such as ray=auto"),
        (["--on", "ray="], "--on must be ray, or ray=ADDRESS"),
        (["--gather"], "--gather applies to tasks on Ray and needs --on ray"),
        (["--gpus-per-task", "0.5"], "--gpus-per-task applies to tasks on Ray and needs --on ray"),
        (["--on", "ray", "--cpus-per-task", "0"], "--cpus-per-task must be at least 1, got 0"),
    ],
)
def test_wrong_options_are_refused(words, sentence, capsys):
    asked = ["evaluate", "--model", "python:tests.evaluation.toys:brightest", "--data", "digits:test"]
    assert main([*asked, *words]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("address", ["127.0.0.2:9", "auto"])
@pytest.mark.parametrize("command", ["corrupt", "study"])
def test_a_cluster_that_is_not_there_leaves_nothing_behind(command, address, tmp_path, capsys, monkeypatch):
    pytest.importorskip("ray", reason="the extra ray is not installed: pip install ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))  # of no cluster
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (40, 40)).save(tmp_path / "photos" / "x.png")
    out = tmp_path / "out"
    words = {"corrupt": [str(tmp_path / "photos"), str(out)], "study": ["scenes/detection", "--out", str(out)]}
    assert main([command, *words[command], "--on", f"ray={address}"]) == 2
    assert f"the Ray cluster '{address}' cannot be joined" in capsys.readouterr().err
    assert not out.exists()


def test_an_address_is_what_stands_behind_the_sign():
    assert parse_on("ray") is None
    assert parse_on("ray=127.0.0.1:6379") == "127.0.0.1:6379"


def test_a_cluster_asks_for_processors_that_there_can_be(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: True)
    with pytest.raises(HoldfastError, match="--gpus-per-task must be at least 0, got -1"):
        Cluster(gpus=-1)
    assert Cluster(gpus=0.25).gpus == 0.25


def test_a_cluster_that_nobody_answers_for_is_told_at_once():
    pytest.importorskip("ray", reason="the extra ray is not installed: pip install ray")
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(HoldfastError, match=rf"'{address}' cannot be joined \(no response"):
            check_reachable(Cluster(address=address))
