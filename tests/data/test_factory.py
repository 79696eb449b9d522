"""Specs of data: splits, stretches and sums of sources."""

import numpy as np
import pytest

from holdfast.data import open_data
from holdfast.errors import HoldfastError
from tests.data.test_source import write_folder, write_npz


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


def test_joined_sources_keep_copies_of_one_image_apart(tmp_path):
    clean, copy = write_folder(tmp_path / "clean"), write_folder(tmp_path / "c+opy")
    joined = open_data(f"folder:{clean}+folder:{copy}")
    assert len(joined) == 12
    assert (joined.id(0), joined.id(6)) == ("0:cat/0.png", "1:cat/0.png")


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
