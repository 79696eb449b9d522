"""Dry runs of trainings: steps, processes, memory and time, and nothing left behind."""

import json

from holdfast.cli.main import main
from tests.runtime.test_dry_run import SMALL


def test_a_training_is_forecast_without_a_folder_and_its_log_says_how_far_off_it_was(tmp_path, capsys):
    words = ["train", "digits/fan_nano", *SMALL, "--model.kwargs.depth=1", "--out", str(tmp_path / "run")]
    assert main([*words, "--dry-run"]) == 0
    assert "32 training images, 1 epochs, 4 steps, 8 images per step" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()
    assert main(words) == 0
    assert "the dry run estimated" in capsys.readouterr().err
    last = json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1])
    assert last["event"] == "forecast"
    assert last["took"] > 0


def test_a_training_is_forecast_for_eight_processes_from_one(tmp_path, capsys):
    words = ["train", "digits/fan_nano", "--out", str(tmp_path / "run"), "--train.global_batch=64", "--dry-run"]
    assert main([*words, "--processes", "8"]) == 0
    said = capsys.readouterr().out
    assert "64 images per step" in said
    assert "8 processes: 8 images each in 1 pass per step, peak learning rate" in said
    assert not (tmp_path / "run").exists()


def test_processes_that_cannot_share_a_step_are_refused_by_the_dry_run_already(tmp_path, capsys):
    words = ["train", "digits/fan_nano", "--out", str(tmp_path / "run"), "--train.global_batch=64", "--dry-run"]
    assert main([*words, "--processes", "7"]) == 2
    assert "takes 64 images per step, which 7 processes cannot share evenly" in capsys.readouterr().err


def test_without_a_global_batch_more_processes_take_more_images_per_step(tmp_path, capsys):
    words = ["train", "digits/fan_nano", "--out", str(tmp_path / "run"), "--train.batch_size=16", "--dry-run"]
    assert main([*words, "--processes", "4"]) == 0
    assert "64 images per step" in capsys.readouterr().out


def test_processes_without_a_dry_run_are_refused_with_the_command_that_starts_them(tmp_path, capsys):
    assert main(["train", "digits/fan_nano", "--out", str(tmp_path / "run"), "--processes", "8"]) == 2
    assert "torchrun --nproc-per-node 8 -m holdfast train" in capsys.readouterr().err
