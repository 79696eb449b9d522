"""Small runs for the tests."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from holdfast.training.loop import TrainingResult, train
from holdfast.training.recipe_files import merge

# a run of 2 epochs × 4 steps that takes about a second
TINY = {
    "data": {"train_subset": 64, "val_subset": 20, "workers": 0},
    "model": {"name": "vit_nano", "kwargs": {"depth": 1}},
    "augment": {"crop": "pad", "hflip": 0.0},
    "schedule": {"warmup_epochs": 1},
    "train": {"epochs": 2, "batch_size": 16, "device": "cpu", "log_steps": 2},
}

# everything that is random at once
RANDOM = {
    "model": {"name": "fan_nano", "kwargs": {"depth": 2, "drop_path_rate": 0.3}},
    "augment": {
        "crop": "resized",
        "rand_augment": "rand-m9-mstd0.5-inc1",
        "interpolation": "random",
        "mixup": 0.8,
        "cutmix": 1.0,
        "erasing": 0.25,
        "smoothing": 0.1,
        "repeats": 2,
    },
    "train": {"ema": 0.9, "accumulate": 2, "batch_size": 8},
}


def tiny(**overrides) -> dict:
    """The tiny recipe with other values, as nested dictionaries."""
    return merge(TINY, overrides)


def run(out: Path, *, resume: bool = False, objective=None, **overrides) -> TrainingResult:
    return train(tiny(**overrides), out=out, resume=resume, objective=objective, show=False)


def log_of(folder: Path, event: str | None = None) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if event in (None, line["event"])]


def assert_same_weights(first: Path, second: Path) -> None:
    """Bit by bit."""
    a, b = load_file(first), load_file(second)
    assert a.keys() == b.keys()
    different = [key for key in a if not torch.equal(a[key], b[key])]
    assert different == []


def assert_same_run(first: Path, second: Path) -> None:
    """The exported model and everything in the last checkpoint are the same, bit by bit."""
    assert_same_weights(first / "model.safetensors", second / "model.safetensors")
    last = first / "checkpoints" / "last"
    for file in last.glob("*.safetensors"):
        assert_same_weights(file, second / "checkpoints" / "last" / file.name)
    states = [json.loads((run / "checkpoints" / "last" / "state.json").read_text()) for run in (first, second)]
    assert states[0] == states[1]
