"""One file of images and labels, and what it must not hold."""

import numpy as np
import pytest

from holdfast.data.npz import open_npz
from holdfast.errors import HoldfastError

X, Y = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3), np.array([1, 0])


def saved(folder, **arrays):
    np.savez_compressed(folder / "photos.npz", **arrays)
    return str(folder / "photos.npz")


def test_images_labels_and_names_are_read_as_they_are(tmp_path):
    source = open_npz(saved(tmp_path, x=X, y=Y, classes=np.array(["cat", "dog", "fox"])), split="train")
    assert (source.id(1), source.classes) == ("photos/000001", ("cat", "dog", "fox"))
    np.testing.assert_array_equal(source.image(1), X[1])
    assert source.targets.tolist() == [1, 0]


def test_grey_images_get_three_channels_and_classes_are_numbered(tmp_path):
    source = open_npz(saved(tmp_path, x=X[..., 0], y=Y[:, None]), split="train")
    assert source.classes == ("0", "1")
    np.testing.assert_array_equal(np.asarray(source.image(0))[..., 2], X[0, ..., 0])


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x": X}, "must hold the arrays x and y, got x"),
        ({"x": X, "y": Y.astype(float)}, "must hold whole numbers, got float64"),
        ({"x": X, "y": Y - 1}, "must count classes from 0, got -1"),
        ({"x": X, "y": Y + 100_000}, "must count classes from 0 to 99999"),
        ({"x": X.astype(float), "y": Y}, "must be uint8 of shape"),
        ({"x": X[..., :2], "y": Y}, "must be uint8 of shape"),
        ({"x": X[:, :0], "y": Y}, "must hold images of at least one pixel"),
        ({"x": X, "y": Y[:1]}, "must have the same length, got 2 and 1"),
        ({"x": X, "y": Y, "classes": np.array(["cat"])}, "must be below its 1 classes, got 1"),
        ({"x": X, "y": Y, "classes": np.array([["cat", "dog"]])}, "must be a list of names"),
        ({"x": np.array([object()]), "y": Y}, "cannot be opened"),
    ],
)
def test_anything_else_is_one_sentence(tmp_path, arrays, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        open_npz(saved(tmp_path, **arrays), split="train")
