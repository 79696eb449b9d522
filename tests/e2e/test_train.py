"""``holdfast train`` as people use it, through the real command line."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from holdfast.cli.main import main
from holdfast.training.recipe_files import to_yaml
from tests.chaos import processes
from tests.training.helpers import RANDOM, assert_same_run, log_of, run, tiny

HOLDFAST = [sys.executable, "-m", "holdfast"]


def recipe_file(path: Path, **overrides) -> Path:
    from holdfast.training.recipe_files import load_recipe

    path.write_text(to_yaml(load_recipe(tiny(**overrides))))
    return path


def start(argv, **environment) -> subprocess.Popen:
    threads = str(torch.get_num_threads())  # the number of threads changes the order of sums
    return subprocess.Popen(argv, env={**os.environ, "OMP_NUM_THREADS": threads, **environment}, stderr=subprocess.PIPE)


def test_a_run_killed_at_a_random_step_resumes_to_the_same_bits(tmp_path):
    """Drop-path, mixup, RandAugment, repeated augmentation, EMA, accumulation and two workers on."""
    values = {**RANDOM, "data": {"workers": 2}, "train": {**RANDOM["train"], "epochs": 4, "checkpoint_steps": 3}}
    recipe = recipe_file(tmp_path / "recipe.yaml", **values)
    log = tmp_path / "killed" / "log.jsonl"
    kill_after = np.random.default_rng().integers(4, 13)  # of 16 steps; any of them must do

    def reached() -> bool:
        lines = log.read_text().splitlines(True)[:-1] if log.exists() else []
        return any(json.loads(line)["step"] >= kill_after for line in lines)

    argv = ["train", str(recipe), "--out", str(tmp_path / "killed")]
    with processes.start(argv, output=tmp_path / "told") as process:
        assert processes.until(reached, 120), process.told()
        assert process.running(), process.told()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "killed" / "model.safetensors").exists()

    assert main(["train", "--out", str(tmp_path / "killed"), "--resume"]) == 0
    run(tmp_path / "whole", **values)
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


def test_two_processes_equal_one_with_the_doubled_batch(tmp_path):
    values = {"train": {"ema": 0.9, "epochs": 2}, "optimizer": {"clip_grad": 1.0}}
    recipe = recipe_file(tmp_path / "recipe.yaml", **values)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = ["-m", "holdfast", "train", str(recipe), "--out", str(tmp_path / "two"), "--train.batch_size=8"]
    command += ["--train.device=auto"]  # the group must be joined without being told that it is one of CPUs
    process = start([*launcher, *command])
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors.decode()
    run(tmp_path / "one", **values)
    (end,) = log_of(tmp_path / "two", "end")
    assert (end["processes"], end["processes_agree"]) == (2, True)
    one, two = (load_file(tmp_path / name / "checkpoints/last/model.safetensors") for name in ("one", "two"))
    for weights in (one, two):
        for key in [key for key in weights if key.endswith("qkv.bias")]:
            # softmax ignores a shift of the keys: their bias has no gradient but rounding, which AdamW makes a step of
            weights[key] = weights[key].unflatten(0, (3, -1))[[0, 2]]
    for key, value in one.items():
        torch.testing.assert_close(two[key], value, rtol=1e-5, atol=1e-7, msg=lambda text, key=key: f"{key}: {text}")
    losses = [[line["loss"] for line in log_of(tmp_path / name, "step")] for name in ("one", "two")]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_sigterm_to_the_command_saves_and_says_how_to_go_on(tmp_path):
    recipe = recipe_file(tmp_path / "recipe.yaml", train={"epochs": 500}, data={"workers": 1})
    process = start([*HOLDFAST, "train", str(recipe), "--out", str(tmp_path / "run")])
    log = tmp_path / "run" / "log.jsonl"
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline and not (log.exists() and log.stat().st_size > 500):
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "stopped by SIGTERM after step" in errors.decode()
    state = json.loads((tmp_path / "run/checkpoints/last/state.json").read_text())
    assert f"after step {state['position']['step']};" in " ".join(errors.decode().split())


@pytest.mark.full  # the demo, tested beside it, trains the same model for longer than everything else here
def test_digits_with_fan_nano_reach_95_percent(tmp_path):
    out = tmp_path / "run"
    assert main(["train", "digits/fan_nano", "--out", str(out), "--train.device=cpu"]) == 0
    assert log_of(out, "epoch")[-1]["top1"] >= 95


# ------------------------------------------------------------------ bad input


def pictures(root: Path, *, classes=("cat", "dog"), count=8) -> Path:
    rng = np.random.default_rng(0)
    for name in classes:
        (root / name).mkdir(parents=True)
        for number in range(count):
            pixels = rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number}.png")
    return root


@pytest.fixture
def folders(tmp_path):
    train, val = pictures(tmp_path / "train"), pictures(tmp_path / "val", count=3)
    sources = [f"--data.train=folder:{train}", f"--data.val=folder:{val}"]
    return [*sources, "--data.train_subset=null", "--data.val_subset=null", "--train.batch_size=4", "--train.epochs=1"]


def train_command(tmp_path, *arguments) -> list[str]:
    recipe = recipe_file(tmp_path / "recipe.yaml")
    return ["train", str(recipe), "--out", str(tmp_path / "run"), *arguments]


def test_training_on_my_folder_of_images(tmp_path, folders):
    assert main(train_command(tmp_path, *folders)) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["label_names"] == ["cat", "dog"]
    assert load_file(tmp_path / "run" / "model.safetensors")["head.weight"].shape[0] == 2


def test_an_unreadable_image_stops_the_run_and_is_skipped_and_counted_on_request(tmp_path, folders, capsys):
    for path in ("train/dog/3.png", "val/cat/1.png"):
        (tmp_path / path).write_bytes(b"broken")
    assert main(train_command(tmp_path, *folders)) == 2
    message = capsys.readouterr().err
    assert "'dog/3.png' cannot be read" in message
    assert "1 unreadable so far, add --skip-bad to continue without them" in message
    assert "Traceback" not in message

    argv = train_command(tmp_path, *folders, "--skip-bad", "--data.workers=1")
    argv[3] = str(tmp_path / "again")
    assert main(argv) == 0
    (epoch,) = log_of(tmp_path / "again", "epoch")
    assert epoch["unreadable"] == 2
    assert "'cat/1.png' cannot be read" in epoch["unreadable_images"][0]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--data.val=npz:nowhere.npz"], "npz:nowhere.npz cannot be opened"),
        (["--train.batch_size=65"], "must not exceed the 64 training images"),
        (["--train.device=cuda"], "torch sees no CUDA device"),
        (["--train.precision=fp16"], "must be 'no' or 'bf16' on a CPU"),
        (["--train.epoch=3"], "unknown option '--train.epoch'; did you mean '--train.epochs'"),
        (["--train.epochs=many"], "--train.epochs must be a whole number, got many"),
        (["--train.epochs=0"], "train.epochs must be at least 1, got 0"),
        (["--augment.mixup=0.8", "--train.batch_size=15"], "must be even for mixup"),
        (["--optimizer.name=adamv"], "optimizer 'adamv' cannot be built"),
        (["--objective.name=cross_entrpy"], "unknown objective 'cross_entrpy'; did you mean 'cross_entropy'"),
        (["--objective.options.tau=2"], "unknown option 'tau' of objective 'cross_entropy'"),
        (["--model.kwargs.dpth=2"], "model.kwargs must be arguments of vit_nano"),
        (["--train.trackers=[tensorbord]"], "unknown tracker 'tensorbord'; did you mean 'tensorboard'"),
        (["--train.trackers=[clearml]"], "which is not installed: pip install clearml"),
    ],
)
def test_bad_input_gets_one_sentence_and_leaves_nothing_behind(tmp_path, capsys, arguments, sentence):
    if "cuda" in arguments[0] and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    assert main(train_command(tmp_path, *arguments)) == 2
    message = capsys.readouterr().err
    assert sentence in message
    assert "Traceback" not in message
    assert message.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_class_folders_that_differ_and_empty_folders_are_refused(tmp_path, folders, capsys):
    pictures(tmp_path / "other", classes=("cat", "eel"))
    (tmp_path / "empty" / "cat").mkdir(parents=True)
    assert main(train_command(tmp_path, *folders, f"--data.val=folder:{tmp_path}/other")) == 2
    assert "val lacks 'dog'; val adds 'eel'" in capsys.readouterr().err
    assert main(train_command(tmp_path, *folders, f"--data.train=folder:{tmp_path}/empty")) == 2
    assert "at least one image, got none" in capsys.readouterr().err


def test_a_run_folder_of_another_recipe_is_not_touched(tmp_path, capsys):
    run(tmp_path / "run", train={"epochs": 1})
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert main(train_command(tmp_path, "--train.epochs=1")) == 2
    assert "already holds a run; add --resume or choose another --out" in capsys.readouterr().err
    assert main(train_command(tmp_path, "--resume", "--optimizer.lr=0.5", "--train.epochs=1")) == 2
    assert "is a run of another recipe: optimizer.lr (0.001, now 0.5)" in capsys.readouterr().err
    assert main(["train", "--out", str(tmp_path / "nowhere"), "--resume"]) == 2
    assert "must be the folder of a run" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_a_yaml_file_with_an_unknown_key_is_answered_with_the_nearest(tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    path.write_text("train:\n  epoch: 3\n")
    assert main(["train", str(path), "--out", str(tmp_path / "run")]) == 2
    assert "unknown recipe key 'train.epoch'; did you mean 'epochs'" in capsys.readouterr().err
    path.write_text("- a\n- list\n")
    assert main(["train", str(path), "--out", str(tmp_path / "run")]) == 2
    assert "must hold keys and values, got list" in capsys.readouterr().err
    assert main(["train", "digits/fan_nan", "--out", str(tmp_path / "run")]) == 2
    assert "unknown recipe 'digits/fan_nan'; did you mean 'digits/fan_nano'" in capsys.readouterr().err


def test_help_does_not_import_torch():
    code = (
        "import sys; from holdfast.cli.main import main; assert main(['train', '--help']) == 0; "
        "assert not {'torch', 'timm', 'torchvision', 'accelerate'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
