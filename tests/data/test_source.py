"""What every data source promises, and what it says when it cannot keep it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from holdfast.data import ArraySource, UnreadableImage, check_same_classes, open_data, stratified_subset
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


def test_the_role_chooses_the_split_unless_the_spec_does():
    assert len(open_data("digits", split="train")) == len(open_data("digits:train", split="val"))


def test_a_stretch_of_a_source_keeps_pixels_and_ids(tmp_path):
    npz = write_npz(tmp_path / "set.npz")
    whole, stretch, rest = (open_data(f"npz:{npz}{part}") for part in ("", "[1:4]", "[4:]"))
    assert [stretch.id(i) for i in range(3)] == [whole.id(i) for i in (1, 2, 3)]
    assert np.array_equal(np.asarray(stretch.image(0)), np.asarray(whole.image(1)))
    assert list(rest.targets) == list(whole.targets[4:])
    assert len(open_data(f"npz:{npz}[0:2]+npz:{npz}[2:]")) == len(whole)
    every_second = open_data(f"npz:{npz}[1::2]")
    assert [every_second.id(i) for i in range(len(every_second))] == [whole.id(i) for i in (1, 3, 5)]
    for impossible in ("[3:3]", "[0:7]", "[6:]"):
        with pytest.raises(HoldfastError, match=r"must name a range of its 6 images, as in \[0:6\]"):
            open_data(f"npz:{npz}{impossible}")


def test_folder_ids_do_not_change_when_files_are_added(tmp_path):
    root = write_folder(tmp_path / "set")
    before = {open_data(f"folder:{root}").id(i) for i in range(6)}
    Image.new("RGB", (4, 4)).save(root / "cat" / "00.png")
    (root / "cat" / "notes.txt").write_text("not an image")
    after = open_data(f"folder:{root}")
    assert before < {after.id(i) for i in range(len(after))}
    assert len(after) == 7


def test_joined_sources_keep_copies_of_one_image_apart(tmp_path):
    clean, copy = write_folder(tmp_path / "clean"), write_folder(tmp_path / "c+opy")
    joined = open_data(f"folder:{clean}+folder:{copy}")
    assert len(joined) == 12
    assert (joined.id(0), joined.id(6)) == ("0:cat/0.png", "1:cat/0.png")


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


def bad_sources(tmp_path):
    (tmp_path / "empty" / "cat").mkdir(parents=True)
    (tmp_path / "flat").mkdir()
    (tmp_path / "text.npz").write_text("no arrays")
    np.savez(tmp_path / "pickled.npz", x=np.array([{}], dtype=object), y=[0])
    write_npz(tmp_path / "floats.npz", x=np.zeros((6, 8, 8, 3), np.float32))
    write_npz(tmp_path / "short.npz", y=[0, 1])
    write_npz(tmp_path / "many.npz", y=[0, 1, 2, 3, 4, 5])
    write_npz(tmp_path / "negative.npz", y=[0, 1, 0, 1, -1, 1])
    np.savez(tmp_path / "nameless.npz", images=[1])
    return [
        ("digit", "unknown data 'digit'; did you mean 'digits'"),
        ("imagenet", "expected one of digits"),
        ("digits:tset", "splits train, val, test, got 'tset'; did you mean 'test'"),
        ("folder:", "must name a path, as in folder:DIR"),
        (f"folder:{tmp_path}/nowhere", "must be a folder of class folders: .*nowhere' does not exist"),
        (f"folder:{tmp_path}/flat", "one folder of images per class, got no folder"),
        (f"folder:{tmp_path}/empty", "at least one image, got none"),
        (f"npz:{tmp_path}/nowhere.npz", "cannot be opened \\(No such file"),
        (f"npz:{tmp_path}/text.npz", "not a readable .npz"),
        (f"npz:{tmp_path}/pickled.npz", "without pickles"),
        (f"npz:{tmp_path}/nameless.npz", "arrays x and y, got images"),
        (f"npz:{tmp_path}/floats.npz", "must be uint8 .* got float32"),
        (f"npz:{tmp_path}/short.npz", "the same length, got 6 and 2"),
        (f"npz:{tmp_path}/many.npz", "below its 2 classes, got 5"),
        (f"npz:{tmp_path}/negative.npz", "count classes from 0, got -1"),
        (f"cifar10:{tmp_path}/nowhere", "missing or damaged; add --data.download=true"),
    ]


def test_bad_sources_get_one_sentence_each(tmp_path):
    for spec, sentence in bad_sources(tmp_path):
        with pytest.raises(HoldfastError, match=sentence):
            open_data(spec)


def test_an_unreadable_image_is_named(tmp_path):
    root = write_folder(tmp_path / "set")
    (root / "dog" / "1.png").write_bytes(b"\x89PNG nothing")
    source = open_data(f"folder:{root}")
    with pytest.raises(UnreadableImage, match=r"'dog/1.png' cannot be read") as caught:
        source.image(4)
    assert caught.value.id == "dog/1.png"


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


def write_image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8)).save(path)


def test_what_a_mac_packs_into_an_archive_is_no_class(tmp_path):
    root = write_folder(tmp_path / "set")
    write_image(root / "__MACOSX" / "cat" / "0.png")
    source = open_data(f"folder:{root}")
    assert source.classes == ("cat", "dog")
    assert len(source) == 6


def test_skipped_gifs_and_empty_classes_are_said_once(tmp_path, caplog):
    root = write_folder(tmp_path / "set")
    write_image(root / "cat" / "a.gif")
    write_image(root / "dog" / "B.GIF")
    (root / "fox").mkdir()
    for _ in range(2):
        source = open_data(f"folder:{root}")
    assert len(source) == 6
    assert source.classes == ("cat", "dog", "fox")
    assert caplog.messages == [
        f"folder:{root}: 2 GIF files are skipped, such as 'cat/a.gif'; convert them to PNG to use them",
        f"folder:{root}: 1 of 3 classes has no image: 'fox'",
    ]
