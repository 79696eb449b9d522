"""No image serves two purposes, and sets that are too small or the same are refused."""

import numpy as np
import pytest

from holdfast.data import open_data
from holdfast.data.factory import sliced_spec
from holdfast.errors import HoldfastError
from holdfast.improvement.halves import share_images, stopped_by
from holdfast.improvement.prepare import Request
from holdfast.training.recipe import DataRecipe, Recipe


def ids(spec: str, split: str) -> set[str]:
    source = open_data(spec, split=split)
    return {source.id(number) for number in range(len(source))}


def npz(folder, *, images: int, classes: int) -> str:
    random = np.random.default_rng(images)
    x = random.integers(0, 256, (images, 8, 8, 3), dtype=np.uint8)
    np.savez(folder / f"{images}.npz", x=x, y=np.arange(images) % classes)
    return f"npz:{folder / f'{images}.npz'}"


def test_the_halves_of_the_validation_images_are_disjoint_and_whole():
    shares = share_images(DataRecipe(), "digits:test")
    stop, choose = ids(shares.stop, "val"), ids(shares.choose, "val")
    assert not stop & choose
    assert stop | choose == ids("digits", "val")
    assert shares.test == "digits:test"
    assert not ids(shares.test, "test") & (stop | choose)
    assert shares.counts == {"train": 1204, "stop": len(stop), "choose": len(choose), "test": 296}


@pytest.mark.parametrize(("asked", "taken"), [(None, None), (0.5, 0.5), (149, 149), (150, None)])
def test_a_recipe_that_validates_on_more_images_than_a_half_has_takes_all_of_them(asked, taken):
    assert len(ids("digits[0::2]", "val")) == 149
    data = stopped_by(DataRecipe(val_subset=asked), "digits[0::2]")
    assert (data.val, data.val_subset) == ("digits[0::2]", taken)


def test_a_set_with_test_images_of_its_own_lends_them_and_another_one_a_third(tmp_path):
    assert share_images(DataRecipe(), None).test == "digits"
    val = npz(tmp_path, images=99, classes=3)
    shares = share_images(DataRecipe(npz(tmp_path, images=60, classes=3), val), None)
    parts = [ids(spec, split) for spec, split in ((shares.stop, "val"), (shares.choose, "val"), (shares.test, "test"))]
    assert [len(part) for part in parts] == [33, 33, 33]
    assert len(set.union(*parts)) == 99
    assert "every third image" in shares.remark


def test_every_part_of_a_joint_set_is_sliced():
    assert sliced_spec("digits:val+digits:test[0:10]", "1::2") == "digits:val[1::2]+digits:test[0:10][1::2]"
    assert len(open_data("digits:test[0:10][1::2]")) == 5


@pytest.mark.parametrize(
    ("train", "val", "test", "sentence"),
    [
        ("digits", "digits", "digits:val[0:40]", "data.test must be other images than data.val, got 'digits/"),
        ("digits", "digits", "digits:test+digits:train[3:9]", "data.test must be other images than data.train, got"),
        ("digits", "digits:train[5::2]", "digits:test", "data.val must be other images than data.train, got 'digits/"),
    ],
)
def test_sets_that_share_some_images_are_refused(train, val, test, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        share_images(DataRecipe(train, val), test)


@pytest.mark.parametrize(
    ("train", "val", "test", "sentence"),
    [
        ((60, 1), (90, 1), (40, 1), "at least two classes, got 1"),
        ((10, 2), (90, 2), (40, 2), "data.train must hold at least 20 images, got 10"),
        ((60, 2), (50, 2), (40, 2), "data.val must hold at least 60 images, 30 to stop early, 30 to choose; got 50"),
        ((60, 2), (80, 2), None, "data.val must hold at least 90 images"),
        ((60, 2), (90, 2), (20, 2), "data.test must hold at least 30 images, got 20"),
        ((60, 2), (90, 2), (90, 2), "data.test must be other images than data.val"),
        ((60, 2), (90, 2), (60, 2), "data.test must be other images than data.train"),
    ],
)
def test_sets_that_cannot_be_shared_out_are_refused(tmp_path, train, val, test, sentence):
    specs = [None if each is None else npz(tmp_path, images=each[0], classes=each[1]) for each in (train, val, test)]
    with pytest.raises(HoldfastError, match=sentence):
        share_images(DataRecipe(specs[0], specs[1]), specs[2])


def test_requests_are_checked():
    with pytest.raises(HoldfastError, match="--against must be one of corruptions, attacks, got 'rain'"):
        Request(Recipe(), against="rain")
    with pytest.raises(HoldfastError, match="--seeds must be a number from 1 to 20, got 0"):
        Request(Recipe(), seeds=0)
