"""AFAT's CIFAR recipes: clean images with named classes beside DeepAugment's copies in numbered class folders."""

import pickle

import numpy as np
import pytest
from PIL import Image
from torchvision.datasets import CIFAR10, CIFAR100

from holdfast.cli.main import main
from holdfast.data import open_data
from holdfast.errors import HoldfastError
from holdfast.training.build import open_sources
from holdfast.training.recipe_files import load_recipe
from tests.data.test_source import write_folder
from tests.training.helpers import log_of

MODELS = ("fan_small_hybrid", "rvt_small_plus", "afat_fan_small_hybrid", "afat_rvt_small_plus")
RECIPES = [f"{dataset}/{model}" for dataset in ("cifar10", "cifar100") for model in MODELS]
NAMES = {"cifar10": [f"name {n}" for n in range(10)], "cifar100": [f"name {n:02d}" for n in range(100)]}
FOLDERS = {"cifar10": list(map(str, range(10))), "cifar100": [f"{n:02d}" for n in range(100)]}


def write_cifar(root, dataset):
    """Two images per class and archive, black, in torchvision's files."""
    kind = CIFAR10 if dataset == "cifar10" else CIFAR100
    base = root / kind.base_folder
    base.mkdir(parents=True)
    labels = [*range(len(NAMES[dataset]))] * 2
    content = {"data": np.zeros((len(labels), 3072), np.uint8), "labels" if kind is CIFAR10 else "fine_labels": labels}
    for name, _ in [*kind.train_list, *kind.test_list]:
        (base / name).write_bytes(pickle.dumps(content))
    (base / kind.meta["filename"]).write_bytes(pickle.dumps({kind.meta["key"]: NAMES[dataset]}))


def write_copies(root, dataset):
    """A JPEG per class, as bright as its number."""
    for number, name in enumerate(FOLDERS[dataset]):
        (root / name).mkdir(parents=True)
        Image.new("RGB", (32, 32), (2 * number,) * 3).save(root / name / "0001.jpg")


@pytest.fixture
def toy_world(tmp_path, monkeypatch):
    """What the recipes' texts ask for, where they look for it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    for dataset in ("cifar10", "cifar100"):
        write_cifar(tmp_path / "home" / ".cache" / "holdfast", dataset)
        for network in ("edsr", "cae"):
            write_copies(tmp_path / "data" / f"{dataset}-{network}", dataset)


@pytest.mark.parametrize("name", RECIPES)
def test_the_copies_get_the_labels_of_the_named_classes(toy_world, name):
    train, val = open_sources(load_recipe(name).data, seed=0)
    assert list(train.classes) == list(val.classes) == NAMES[name.split("/")[0]]
    clean, *copies = train.parts
    assert len(train) == len(clean) + 2 * len(train.classes)
    for copy in copies:
        levels = [np.asarray(copy.image(index)).mean() / 2 for index in range(len(copy))]
        np.testing.assert_allclose(levels, copy.targets, atol=0.4)


def run_small(name, out):
    small = [
        "--train.batch_size=2",
        "--train.global_batch=2",
        "--data.train_subset=4",
        "--data.val_subset=2",
        "--augment.repeats=1",
    ]
    return main(["train", name, f"--out={out}", "--train.epochs=1", "--data.workers=0", *small])


def test_a_recipe_runs_as_its_text_says(toy_world, tmp_path):
    assert run_small("cifar100/rvt_small_plus", tmp_path / "run") == 0
    assert log_of(tmp_path / "run", "end")


@pytest.mark.full
@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_runs_as_its_text_says(toy_world, tmp_path, name):
    assert run_small(name, tmp_path / "run") == 0
    assert log_of(tmp_path / "run", "end")


def test_training_parts_that_disagree_are_named(tmp_path):
    first = write_folder(tmp_path / "first", classes=("cat", "dog"))
    second = write_folder(tmp_path / "second", classes=("0", "1", "2"))
    with pytest.raises(HoldfastError) as refused:
        open_data(f"folder:{first}+folder:{second}", split="train")
    sentence = str(refused.value)
    assert sentence.startswith(f"'folder:{first}' and 'folder:{second}' must have the same classes in the same order")
    assert "got 2 and 3" in sentence
    assert "numbered folders must be 0 to 1" in sentence
    assert "val" not in sentence.replace("'folder:", "")


def test_named_classes_are_kept_wherever_they_stand(tmp_path):
    numbered, named = (
        write_folder(tmp_path / name, classes=classes) for name, classes in (("n", ("0", "1")), ("w", ("cat", "dog")))
    )
    assert open_data(f"folder:{numbered}+folder:{named}").classes == ("cat", "dog")
