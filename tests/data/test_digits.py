"""The embedded digits: three splits that share no image, of all classes."""

import numpy as np
import pytest

from holdfast.data.digits import SPLITS, open_digits, split_of_every_image
from holdfast.errors import HoldfastError


def test_the_splits_hold_every_digit_once_and_all_classes_in_their_shares():
    sources = [open_digits(split, split="train") for split in SPLITS]
    ids = [source.id(index) for source in sources for index in range(len(source))]
    assert len(ids) == len(set(ids)) == 1797
    counts = np.array([np.bincount(source.targets, minlength=10) for source in sources])
    assert (np.abs(counts[0] - 4 * counts[1]) <= 8).all()
    assert (np.abs(counts[1] - counts[2]) <= 1).all()


def test_an_image_is_grey_and_32_pixels_large():
    image = np.asarray(open_digits("", split="test").image(0))
    assert image.shape == (32, 32, 3)
    assert (image == image[..., :1]).all()


def test_a_split_follows_from_the_place_within_the_class():
    found = split_of_every_image(np.array([1, 0, 1, 1, 1, 1, 1, 0]))
    assert found.tolist() == ["train", "train", "train", "train", "train", "val", "test", "train"]


def test_another_split_is_refused():
    with pytest.raises(HoldfastError, match="got 'tset'; did you mean 'test'"):
        open_digits("tset", split="train")
