"""What Ray's nodes measure is, byte for byte, what one process measures, also if a node dies in the middle."""

import signal
import time

import numpy as np
import pytest
from PIL import Image

from holdfast.cli.main import main
from holdfast.studies.results import read_result
from tests.cluster.nodes import command, contents, done, second_of, two_nodes
from tests.evaluation.toys import colours

pytest.importorskip("ray", reason="the extra ray is not installed: pip install ray")

PLUGIN = """from holdfast.corruptions import register


def darker(images, draws, *, by):
    return images // by


register(darker, severities=[{"by": by} for by in (2, 3, 4, 5, 6)], short="Dark", random=False)
"""
STUDY = """# two rows, and one that starts from the first
recipe: digits/fan_nano
test: digits:test
limit: 12
seeds: [0, 1]
suites: [clean]
common: {data: {train_subset: 32, val_subset: 8, workers: 0}, train: {epochs: 2, batch_size: 8, checkpoint_steps: 1}}
rows:
  plain: {model: {kwargs: {depth: 1}}}
  again: {model: {kwargs: {depth: 1}, init: "run:{plain}"}}
"""
EVALUATE = (
    "evaluate",
    "--model",
    "python:tests.evaluation.toys:slow",
    "--data",
    "npz:colours.npz",
    "--batch-size",
    "8",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    source = colours(30)
    np.savez(folder / "colours.npz", x=source.images, y=source.targets)
    (folder / "study.yaml").write_text(STUDY)
    (folder / "photos").mkdir()
    for number in range(12):
        pixels = np.random.default_rng(number).integers(0, 256, (40, 48, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / f"{number}.png")
    (folder / "plug.py").write_text(PLUGIN)
    return folder


def kill_when(ready, cluster, process):
    """Take a node away, with no farewell, as soon as there is something on disk."""
    while not ready():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.2)
    cluster.remove_node(second_of(cluster), allow_graceful=False)


def finished(runs, kind):
    """What runs leave, without the checkpoints on the way: those stay on the nodes."""
    return {name: content for name, content in contents(runs, kind).items() if "/checkpoints/" not in name}


def test_a_folder_is_corrupted_on_ray_as_here_with_a_plugin_and_what_comes_home(place):
    words = ("corrupt", "photos", "--kinds", "fog,darker", "--severity", "1,3", "--plugin", "plug.py")
    done(command(*words[:2], "here", *words[2:], "--workers", "1", folder=place))
    told = done(command(*words[:2], "there", *words[2:], "--on", "ray", "--gather", folder=place))
    assert "48 files written" in told
    assert contents(place / "there", "*.png") == contents(place / "here", "*.png")
    assert len(contents(place / "here", "*.png")) == 48


@pytest.mark.full
def test_an_evaluation_that_loses_a_node_is_byte_identical_to_a_single_process(place):
    with two_nodes() as cluster:
        process = command(*EVALUATE, "--out", "lost", "--on", f"ray={cluster.address}", folder=place)
        records = place / "lost" / "records"
        kill_when(lambda: len(list(records.glob("*/*.00000.safetensors"))) >= 8, cluster, process)
        told = done(process)
        assert "records: lost/records" in told
        done(command(*EVALUATE, "--out", "home", "--on", f"ray={cluster.address}", "--gather", folder=place))
    done(command(*EVALUATE, "--out", "alone", "--workers", "0", folder=place))
    alone = contents(place / "alone")
    assert len(alone) >= 77
    assert contents(place / "lost") == alone
    assert contents(place / "home") == alone


@pytest.mark.full
def test_a_study_that_loses_a_node_has_the_results_of_a_single_process(place):
    study = ("study", "study.yaml", "--out")
    done(command(*study, "alone/study", folder=place))
    with two_nodes() as cluster:
        process = command(*study, "lost/study", "--on", f"ray={cluster.address}", folder=place)
        runs = place / "lost" / "study" / "runs"
        kill_when(lambda: len(list(runs.glob("*/*/checkpoints/step-*"))) >= 2, cluster, process)
        done(process)
        done(command(*study, "home/study", "--on", f"ray={cluster.address}", "--gather", folder=place))
    for other in ("lost", "home"):
        for kind in ("model.safetensors", "*.00000.safetensors"):
            mine, theirs = (finished(place / name / "study" / "runs", kind) for name in ("alone", other))
            assert {key.split("/records/")[0] for key in mine} == {key.split("/records/")[0] for key in theirs}
            assert sorted(mine.values()) == sorted(theirs.values())
        for path in sorted((place / "alone" / "study" / "results").glob("*.safetensors")):
            here, there = read_result(path), read_result(place / other / "study" / "results" / path.name)
            assert {**here.header, "processor_seconds": None} == {**there.header, "processor_seconds": None}
            for cell, values in here.right.items():
                np.testing.assert_array_equal(values, there.right[cell])


@pytest.mark.full
def test_ctrl_c_leaves_what_is_finished_and_the_same_command_goes_on(place):
    words = (*EVALUATE, "--out", "stopped", "--on", "ray")
    process = command(*words, folder=place)
    records = place / "stopped" / "records"
    while len(list(records.glob("*/*.00000.safetensors"))) < 4:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    told = process.communicate(timeout=300)[0]
    assert process.returncode == 130
    assert "stopped; run the same command again to resume" in told
    done(command(*words, folder=place))
    done(command(*EVALUATE, "--out", "unstopped", "--workers", "0", folder=place))
    assert contents(place / "stopped") == contents(place / "unstopped")


@pytest.mark.full
def test_a_node_that_sees_no_such_folder_is_told_to_gather(place, capfd, monkeypatch):
    monkeypatch.chdir(place)
    assert main([*EVALUATE, "--out", "x", "--on", "ray", "--cpus-per-task", "1000"]) == 2
    assert "--cpus-per-task must be at most the" in capfd.readouterr().err


@pytest.mark.full
def test_rounds_on_ray_are_those_of_a_single_process(place):
    words = ("evaluate", "--model", "python:tests.evaluation.toys:brightest", "--data", "npz:colours.npz")
    words = (*words, "--suite", "clean,corruptions-135", "--until", "18,fog=35", "--workers", "0")
    done(command(*words, "--out", "rounds-here", folder=place))
    done(command(*words, "--out", "rounds-ray", "--on", "ray", folder=place))
    here, there = (contents(place / name, "*.safetensors") for name in ("rounds-here", "rounds-ray"))
    assert any("rounds" in name for name in here)
    assert here == there
