"""Checkpoints that a kill, a disk or another process has touched: the run ends with the same bits."""

import json
import shutil

import pytest

from holdfast.errors import HoldfastError
from holdfast.training.checkpoint import repair
from holdfast.training.loop import train
from holdfast.training.run_folder import check_free, lock_folder
from tests.chaos.processes import fork, until
from tests.training.helpers import assert_same_run, run, tiny

VALUES = {"train": {"epochs": 2, "checkpoint_steps": 2, "keep_epochs": 1, "ema": 0.9}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(folder, **VALUES)
    return folder


@pytest.fixture
def cut(whole, tmp_path):
    """The same run as if it had been killed after its last checkpoint."""
    shutil.copytree(whole, tmp_path / "run", symlinks=True)
    for name in ("model.safetensors", "config.json"):
        (tmp_path / "run" / name).unlink()
    return tmp_path / "run"


def checkpoints(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir() if not path.is_symlink())


@pytest.mark.parametrize("name", ["last", "best"])
@pytest.mark.parametrize("fate", ["stale", "gone", "dangling"])
def test_links_are_put_in_order_when_the_run_goes_on(cut, whole, name, fate):
    """A kill between a checkpoint's rename and its links."""
    link = cut / "checkpoints" / name
    link.unlink()
    if fate != "gone":
        link.symlink_to("step-00000004" if fate == "stale" else "step-00000002")
    run(cut, resume=True, **VALUES)
    assert link.resolve().name == (whole / "checkpoints" / name).resolve().name
    assert_same_run(cut, whole)


@pytest.mark.parametrize("name", ["model.safetensors", "ema.safetensors", "optimizer.safetensors", "state.json"])
def test_one_flipped_bit_is_found_and_the_run_goes_on_from_the_checkpoint_before(cut, whole, name):
    file = cut / "checkpoints" / "last" / name
    content = bytearray(file.read_bytes())
    content[-len(content) // 3] ^= 1
    file.write_bytes(content)
    run(cut, resume=True, **VALUES)
    assert_same_run(cut, whole)
    assert [name for name in checkpoints(cut) if "damaged" in name] == ["damaged-step-00000008"]


def test_without_any_intact_checkpoint_the_run_begins_again(cut, whole):
    for state in (cut / "checkpoints").glob("step-*/state.json"):
        state.write_text("{")
    run(cut, resume=True, **VALUES)
    assert_same_run(cut, whole)


@pytest.mark.parametrize(
    "state", ["[]", "3", '{"position": 3}', '{"position": {"step": "8"}, "numbers": {}}', "[" * 100_000, "\xff"]
)
def test_a_state_of_another_shape_is_damage(cut, state):
    (cut / "checkpoints" / "last" / "state.json").write_text(state, encoding="latin-1")
    assert [path.name for path in repair(cut / "checkpoints")] == ["damaged-step-00000008"]


def test_folders_of_other_names_are_left_alone(cut, whole):
    for name in ("step-old", "step-1", "notes"):
        (cut / "checkpoints" / name).mkdir()
    run(cut, resume=True, **VALUES)
    assert {"step-old", "step-1", "notes"} <= set(checkpoints(cut))
    assert_same_run(cut, whole)


def test_a_checkpoint_that_a_kill_kept_from_being_pruned_goes(cut, whole):
    shutil.copytree(cut / "checkpoints" / "step-00000004", cut / "checkpoints" / "step-00000006")
    run(cut, resume=True, **VALUES)
    assert checkpoints(cut) == checkpoints(whole)


def test_checkpoints_without_checksums_are_still_read(cut, whole):
    for file in (cut / "checkpoints").glob("step-*/state.json"):
        state = json.loads(file.read_text())
        del state["checksums"], state["checksum"]
        file.write_text(json.dumps(state))
    assert repair(cut / "checkpoints") == []
    run(cut, resume=True, **VALUES)


def test_a_log_that_a_kill_or_a_disk_has_damaged_loses_those_lines_alone(cut, whole):
    with (cut / "log.jsonl").open("ab") as log:
        log.write(b'\xff\xfe\n{"event": "step"}\n[1]\n' + b"[" * 100_000 + b'\n{"event": "st')
    run(cut, resume=True, **VALUES)
    kept = [json.loads(line) for line in (cut / "log.jsonl").read_text().splitlines()]
    assert [line["event"] for line in kept] == [
        json.loads(line)["event"] for line in (whole / "log.jsonl").read_text().splitlines()
    ]


def test_two_runs_never_share_a_folder(tmp_path):
    with lock_folder(tmp_path), pytest.raises(HoldfastError, match="another process is training in"):
        run(tmp_path)
    assert not list(tmp_path.iterdir())
    check_free(tmp_path)


def test_the_lock_dies_with_its_owner_though_a_worker_lives_on(tmp_path):
    import os
    import signal
    import time

    def hold():
        with lock_folder(tmp_path):
            if os.fork() == 0:  # a worker
                time.sleep(60)
            (tmp_path / "locked").touch()
            time.sleep(60)
        return 0

    with fork(hold, output=tmp_path / "told") as owner:
        assert until((tmp_path / "locked").exists, 20)
        with pytest.raises(HoldfastError, match="another process"):
            check_free(tmp_path)
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        assert owner.family()
        check_free(tmp_path)


def test_a_run_refused_before_its_first_step_leaves_nothing(tmp_path):
    for values in (
        {"data": {"size": 33}, "model": {"name": "fan_nano"}},
        {"model": {"kwargs": {"depth": 1, "nonsense": 3}}},
        {"augment": {"rand_augment": "rand-nonsense"}},
        {"augment": {"rand_augment": "bogus"}},
    ):
        with pytest.raises(HoldfastError):
            run(tmp_path / "a" / "b", **values)
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"model": {"kwargs": {"num_classes": 3}}}, "model.kwargs must not hold 'num_classes'"),
        ({"model": {"kwargs": {"drop_path_rate": 5}}}, "drop_path_rate must be at least 0 and below 1, got 5"),
        ({"model": {"kwargs": {"depth": -1}}}, "depth must be at least 1, got -1"),
        ({"model": {"kwargs": {"depth": "two"}}}, "depth must be at least 1, got two"),
        ({"optimizer": {"lr": float("inf")}}, "optimizer.lr must be a finite number, got inf"),
        (
            {"objective": {"name": "robust", "options": {"adl": {"tau": float("nan")}}}},
            "options.adl.tau must be a finite",
        ),
        ({"data": {"std": [0, 0, 0]}}, "data.std must be three numbers above 0"),
        ({"data": {"size": 1_000_000}}, "data.size must be from 1 to 4096 pixels, got 1000000"),
        ({"augment": {"rand_augment": "rand-nonsense"}}, "augment.rand_augment must be a policy of timm"),
    ],
)
def test_values_that_no_run_can_have_are_refused(tmp_path, values, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        train(tiny(**values), out=tmp_path / "run", show=False)
    assert not list(tmp_path.iterdir())


def test_a_group_that_cannot_be_joined_is_one_sentence(tmp_path, monkeypatch):
    """accelerate launch --cpu --num_processes 2 sets these and starts one process."""
    for name, value in (("ACCELERATE_USE_CPU", "True"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")):
        monkeypatch.setenv(name, value)
    with pytest.raises(HoldfastError, match="started only one of several processes; start them with: torchrun"):
        run(tmp_path / "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("told", ["abc", "", "0", "-2", "1.5"])
def test_a_number_of_processes_that_is_none_is_one_sentence(tmp_path, monkeypatch, capsys, told):
    from holdfast.cli.main import main

    monkeypatch.setenv("WORLD_SIZE", told)
    assert main(["train", "digits/fan_nano", "--out", str(tmp_path / "run")]) == 2
    assert f"WORLD_SIZE must be the number of processes, at least 1, got {told!r}" in capsys.readouterr().err
    assert main(["evaluate", "--model", "timm:resnet18", "--data", "digits:test", "--out", str(tmp_path / "e")]) == 2
    assert not list(tmp_path.iterdir())
