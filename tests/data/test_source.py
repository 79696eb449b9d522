"""What every data source promises, and what it says when it cannot keep it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from holdfast.data import ArraySource, check_same_classes, open_data, stratified_subset
from holdfast.errors import HoldfastError


def write_folder(root, *, classes=("cat", "dog"), images=3, size=12):
    for label, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for number in range(images):
            Image.new("RGB", (size, size), (40 * label, 10 * number, 0)).save(root / name / f"{number}.png")
    return root


def write_npz(path, *, images=6, classes=("cat", "dog"), **arrays):
    rng = np.random.default_rng(0)
    content = {
        "x": rng.integers(0, 256, (images, 8, 8, 3), dtype=np.uint8),
        "y": np.arange(images) % 2,
        "classes": classes,
    }
    np.savez(path, **{**content, **arrays})
    return path


@pytest.fixture
def specs(tmp_path):
    folder = write_folder(tmp_path / "folder")
    npz = write_npz(tmp_path / "set.npz")
    return [
        f"folder:{folder}",
        f"npz:{npz}",
        "digits",
        "digits:test",
        f"folder:{folder}+npz:{npz}",
        "digits+digits:test",
    ]


def test_every_source_has_images_with_a_class_and_an_id_of_their_own(specs):
    for spec in specs:
        source = open_data(spec)
        assert len(source) == len(source.targets) > 0
        assert source.targets.dtype == np.int64
        assert set(source.targets) <= set(range(len(source.classes)))
        assert len({source.id(index) for index in range(len(source))}) == len(source)
        assert source.image(0).mode == "RGB"


def test_ids_and_pixels_are_the_same_when_opened_again_and_in_a_subset(specs):
    for spec in specs:
        source, again = open_data(spec), open_data(spec)
        subset = stratified_subset(again, 0.5, seed=3)
        by_id = {source.id(index): np.asarray(source.image(index)) for index in range(len(source))}
        for index in range(len(subset)):
            np.testing.assert_array_equal(by_id[subset.id(index)], np.asarray(subset.image(index)))


def test_digits_are_split_once_and_for_all_with_every_class_in_its_share():
    splits = {name: open_data(f"digits:{name}") for name in ("train", "val", "test")}
    ids = {name: {source.id(i) for i in range(len(source))} for name, source in splits.items()}
    assert [len(ids[name]) for name in splits] == [1204, 297, 296]
    assert len(ids["train"] | ids["val"] | ids["test"]) == 1797
    for source in splits.values():
        shares = np.bincount(source.targets) / len(source)
        np.testing.assert_allclose(shares, 0.1, atol=0.01)
    assert splits["train"].image(0).size == (32, 32)


@settings(max_examples=25, deadline=None)
@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=6), share=st.floats(0.01, 1.0), seed=st.integers(0, 9))
def test_a_subset_has_its_size_and_every_class_in_its_share(counts, share, seed):
    targets = np.repeat(np.arange(len(counts)), counts)
    source = ArraySource(
        "x", np.zeros((len(targets), 1, 1, 3), np.uint8), targets, tuple(map(str, counts)), np.arange(len(targets))
    )
    size = max(1, round(share * len(targets)))
    subset = stratified_subset(source, size, seed=seed)
    assert len(subset) == size == len(set(subset.indices))
    exact = np.array(counts) * size / len(targets)
    assert (np.abs(np.bincount(subset.targets, minlength=len(counts)) - exact) < 1).all()


def test_subsets_follow_the_seed():
    digits = open_data("digits")
    first, again, other = (stratified_subset(digits, 50, seed=seed).indices for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("size", [0, -1, 2.5, 300, 1e-9])
def test_a_subset_of_impossible_size_gets_one_sentence(size):
    with pytest.raises(HoldfastError, match="fraction in \\(0, 1\\) or a count of 1 to 297"):
        stratified_subset(open_data("digits"), size, seed=0)


def test_grey_arrays_become_colour_and_unnamed_classes_are_numbered(tmp_path):
    np.savez(tmp_path / "grey.npz", x=np.zeros((3, 5, 5), np.uint8), y=[0, 2, 1])
    source = open_data(f"npz:{tmp_path / 'grey.npz'}")
    assert source.classes == ("0", "1", "2")
    assert source.image(0).size == (5, 5)


def test_cifar_takes_torchvisions_files(tmp_path, monkeypatch):
    import pickle

    from torchvision.datasets import CIFAR10

    base = tmp_path / CIFAR10.base_folder
    base.mkdir()
    for name, _ in [*CIFAR10.train_list, *CIFAR10.test_list]:
        (base / name).write_bytes(pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [3, 9]}))
    (base / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))
    monkeypatch.setattr(CIFAR10, "_check_integrity", lambda self: True)
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *args: True)
    train, test = open_data(f"cifar10:{tmp_path}", split="train"), open_data(f"cifar10:{tmp_path}", split="val")
    assert (len(train), len(test)) == (10, 2)
    assert (train.id(0), test.id(1)) == ("cifar10/train/000000", "cifar10/test/000001")
    assert train.classes[9] == "j"


@pytest.mark.parametrize(
    ("val_classes", "sentence"),
    [
        (("cat",), "got 2 and 1: val lacks 'dog'"),
        (("cat", "dog", "eel"), "val adds 'eel'"),
        (("cat", "eel"), "val lacks 'dog'; val adds 'eel'"),
    ],
)
def test_class_folders_that_differ_are_listed(tmp_path, val_classes, sentence):
    train, val = write_folder(tmp_path / "train"), write_folder(tmp_path / "val", classes=val_classes)
    with pytest.raises(HoldfastError, match=sentence):
        check_same_classes(open_data(f"folder:{train}"), open_data(f"folder:{val}"))
