"""What a signal does to a command and to the processes it has started."""

import multiprocessing
import os
import signal
import socket
import sys
import threading
import time

import numpy as np
import pytest
from PIL import Image

from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.runtime.signals import worker_deaths
from tests.chaos.processes import start, until
from tests.studies.test_runner import STUDY
from tests.training.helpers import assert_same_run, run, tiny

PATIENCE = 240  # seconds, on a machine that others use too
LONG = {"data": {"workers": 2}, "train": {"epochs": 400, "checkpoint_steps": 1}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("signals") / "run"
    run(folder)
    return folder


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photographs")
    for number in range(60):
        pixels = np.random.default_rng(number).integers(0, 256, (96, 96, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def recipe_file(path, **values):
    from holdfast.training.recipe_files import load_recipe, to_yaml

    path.write_text(to_yaml(load_recipe(tiny(**values))))
    return str(path)


def begun(name, trained, photographs, tmp_path):
    """A command that lasts for a while, and a sign that it is in the midst of its work."""
    out = tmp_path / "out"
    if name == "train":
        return ["train", recipe_file(tmp_path / "r.yaml", **LONG), "--out", str(out)], out / "checkpoints/last"
    if name == "evaluate":
        options = ["--suite=corruptions", "--workers=2", "--out", str(out)]
        return ["evaluate", str(trained), *options], out / "records"
    if name == "corrupt":
        return ["corrupt", str(photographs), str(out), "--workers=2"], out / "brightness"
    (tmp_path / "study.yaml").write_text(STUDY.replace("epochs: 1", "epochs: 400"))
    return ["study", str(tmp_path / "study.yaml"), "--out", str(out), "--processes=2"], out / "runs/ADL/seed0/log.jsonl"


@pytest.mark.parametrize("name", ["train", "evaluate", "corrupt"])
def test_sigterm_is_143_one_sentence_and_no_orphan(name, trained, photographs, tmp_path):
    argv, sign = begun(name, trained, photographs, tmp_path)
    with start(argv, output=tmp_path / "told") as command:
        assert until(sign.exists, PATIENCE), command.told()
        os.kill(command.pid, signal.SIGTERM)
        assert command.wait(PATIENCE) == 143
        assert "stopped" in command.told().splitlines()[-1]
        assert "Traceback" not in command.told()
        assert until(lambda: not command.family(), 20), command.family()


@pytest.mark.parametrize("name", ["corrupt", pytest.param("study", marks=pytest.mark.full)])
def test_nothing_outlives_a_killed_command(name, trained, photographs, tmp_path):
    argv, sign = begun(name, trained, photographs, tmp_path)
    with start(argv, output=tmp_path / "told") as command:
        assert until(sign.exists, PATIENCE), command.told()
        os.kill(command.pid, signal.SIGKILL)
        assert command.wait() == -signal.SIGKILL
        assert until(lambda: not command.family(), 20), command.family()


@pytest.mark.parametrize(
    ("name", "way_on"),
    [
        ("train", "resume with --resume, with fewer --data.workers"),
        ("evaluate", "run the same command again to resume, with fewer --workers"),
        ("corrupt", "rerun to resume, with fewer --workers"),
        pytest.param("study", "run the same command again to resume, with fewer --processes", marks=pytest.mark.full),
    ],
)
def test_a_killed_worker_is_a_sentence_and_a_way_on(name, way_on, trained, photographs, tmp_path):
    argv, sign = begun(name, trained, photographs, tmp_path)
    with start(argv, output=tmp_path / "told") as command:
        assert until(lambda: sign.exists() and bool(command.family()), PATIENCE), command.told()
        os.kill(max(command.family()), signal.SIGKILL)
        assert command.wait(PATIENCE) == 2, command.told()
        assert command.told().splitlines()[-1].startswith("holdfast: error: ")
        assert way_on in command.told()
        assert "Traceback" not in command.told()
        assert until(lambda: not command.family(), 20), command.family()


def test_a_worker_that_dies_as_it_hands_over_is_the_same_sentence():
    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    with (
        pytest.raises(HoldfastError, match=r"a worker process died, .*; go on"),
        worker_deaths(way_on="go on"),
    ):
        ours.recv()
    with pytest.raises(ConnectionResetError, match="a server"), worker_deaths(way_on="go on"):
        raise ConnectionResetError("a server of somebody else's")


def test_the_news_of_its_death_a_moment_later_is_no_second_error():
    heard = []

    def told(number, frame):
        heard.append(number)
        raise RuntimeError("DataLoader worker (pid 1) is killed by signal: Killed.")

    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    before = signal.signal(signal.SIGCHLD, told)
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGCHLD)).start()
        with (
            pytest.raises(HoldfastError, match=r"a worker process died, .*; go on"),
            worker_deaths(way_on="go on"),
        ):
            ours.recv()
        assert heard == [signal.SIGCHLD]
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_run_stopped_by_sigterm_goes_on_to_the_same_bits(tmp_path):
    values = {"train": {"epochs": 3, "checkpoint_steps": 1}}
    recipe = recipe_file(tmp_path / "r.yaml", **values)
    with start(["train", recipe, "--out", str(tmp_path / "stopped")], output=tmp_path / "told") as command:
        assert until((tmp_path / "stopped" / "checkpoints/last").exists, PATIENCE), command.told()
        os.kill(command.pid, signal.SIGTERM)
        assert command.wait(PATIENCE) in (0, 143)
    assert main(["train", "--out", str(tmp_path / "stopped"), "--resume"]) == 0
    run(tmp_path / "whole", **values)
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")


BOTH = pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])


def stopped_by_its_model(source, code, folder, monkeypatch, capsys):
    """Evaluate `model` of this source, which sends us a signal: the exit code and the last line must say so."""
    module = f"signalling_{folder.name}"
    monkeypatch.delitem(sys.modules, module, raising=False)  # a folder of that name was an earlier test's
    (folder / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(folder)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore it
    options = ["--suite=clean", "--limit=20", "--size=8", "--out", str(folder / "out")]
    try:
        assert main(["evaluate", "--model", f"python:{module}:model", "--data", "digits:test", *options]) == code
    finally:
        signal.signal(signal.SIGINT, before)
    told = capsys.readouterr().err
    assert told.splitlines()[-1] == "holdfast: stopped; run the same command again to resume"
    assert "Traceback" not in told
    assert main(["list", "recipes"]) == 0  # nothing of it is left for the next command


@BOTH
def test_an_interruption_that_a_library_makes_an_error_of_is_still_one(number, code, tmp_path, monkeypatch, capsys):
    source = (
        "import os, time\n"
        "def model():\n"
        "    try:\n"
        f"        os.kill(os.getpid(), {number:d})\n"
        "        time.sleep(5)\n"
        "    except KeyboardInterrupt:\n"
        "        raise ValueError('Invalid bounding box') from None\n"
    )
    stopped_by_its_model(source, code, tmp_path, monkeypatch, capsys)


@BOTH
def test_an_interruption_that_a_library_swallows_still_ends_the_command(number, code, tmp_path, monkeypatch, capsys):
    source = (
        "import os, time, torch\n"
        "class model(torch.nn.Module):\n"
        "    def forward(self, images):\n"
        "        try:\n"
        f"            os.kill(os.getpid(), {number:d})\n"
        "            time.sleep(5)\n"
        "        except KeyboardInterrupt:\n"
        "            return torch.zeros(len(images), 10)\n"
    )
    stopped_by_its_model(source, code, tmp_path, monkeypatch, capsys)


def test_a_process_that_waits_for_the_others_of_its_group_can_be_ended(tmp_path):
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        group = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        group |= {"MASTER_PORT": str(taken.getsockname()[1])}
        argv = ["train", recipe_file(tmp_path / "r.yaml"), "--out", str(tmp_path / "out")]
        with start(argv, output=tmp_path / "told", **group) as command:
            time.sleep(8)  # it is waiting by then, or not yet there: both must end
            assert command.running(), command.told()
            os.kill(command.pid, signal.SIGTERM)
            assert command.wait(60) in (143, -signal.SIGTERM)
