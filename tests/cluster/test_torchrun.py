"""Two torchrun agents on 127.0.0.1, as on two nodes: one run, a rank that dies, and another number of processes."""

import json
import os
import socket
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from holdfast.cli.main import main
from tests.e2e.test_train import recipe_file
from tests.training.helpers import log_of, run

DYING = """import os
import signal

from holdfast.training import loop

whole = loop.train_step


def dying(stage, batches, *, step, epoch):
    if step == 6 and os.environ.get("RANK") == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(stage, batches, step=step, epoch=epoch)


loop.train_step = dying
"""


def agents(*words: str) -> list[tuple[int, str]]:
    """Two agents with a process each; how they ended, and what they said."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    torchrun += ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    started = [
        subprocess.Popen(
            [*torchrun, "--node-rank", str(rank), "-m", "holdfast", *words], env=environment, stderr=subprocess.PIPE
        )
        for rank in (0, 1)
    ]
    try:
        told = [process.communicate(timeout=900)[1].decode() for process in started]
    finally:
        for process in started:
            process.kill()
    return [(process.returncode, text) for process, text in zip(started, told, strict=True)]


@pytest.mark.full
def test_a_run_on_two_nodes_loses_a_rank_and_goes_on_alone_with_the_same_images_per_step(tmp_path):
    values = {"train": {"epochs": 3, "checkpoint_steps": 2, "log_steps": 1}}
    recipe, out = recipe_file(tmp_path / "recipe.yaml", **values), tmp_path / "two"
    (tmp_path / "dying.py").write_text(DYING)
    words = ("train", str(recipe), "--out", str(out), "--train.batch_size=8")
    ends = agents(*words, "--plugin", str(tmp_path / "dying.py"))
    assert all(code != 0 for code, _ in ends)
    assert "one of the 2 is gone; the last checkpoint is kept" in ends[0][1]
    assert json.loads((out / "checkpoints" / "last" / "state.json").read_text())["position"]["step"] == 6

    assert main(["train", "--out", str(out), "--resume"]) == 0  # one process, two halves of a batch each step
    run(tmp_path / "one", **values)
    steps = {name: log_of(tmp_path / name, "step") for name in ("one", "two")}
    assert [line["step"] for line in steps["two"]] == [line["step"] for line in steps["one"]] == list(range(1, 13))
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for weights in (one, two):
        for key in [key for key in weights if key.endswith("qkv.bias")]:
            # that of the keys has no gradient but rounding, which AdamW makes a step of
            weights[key] = weights[key].unflatten(0, (3, -1))[[0, 2]]
    for key, value in one.items():
        torch.testing.assert_close(two[key], value, rtol=1e-5, atol=1e-6, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.full
def test_two_nodes_train_one_run(tmp_path):
    recipe = recipe_file(tmp_path / "recipe.yaml")
    ends = agents("train", str(recipe), "--out", str(tmp_path / "two"), "--train.batch_size=8")
    assert [code for code, _ in ends] == [0, 0], ends
    (end,) = log_of(tmp_path / "two", "end")
    assert (end["processes"], end["processes_agree"]) == (2, True)
