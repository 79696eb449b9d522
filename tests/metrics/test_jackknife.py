"""Replicates leave out one group of images at a time; groups depend on the images alone."""

import numpy as np
import pytest

from holdfast.errors import HoldfastError
from holdfast.metrics.intervals import jackknife_estimate
from holdfast.metrics.jackknife import GROUPS, grouping_of, groups_of, image_groups, replicated_means
from holdfast.metrics.replicates import replicate

CAMVID = [f"test/0001TP_{n:06d}" for n in range(30)] + [f"test/Seq05VD_f{n:05d}" for n in range(45)]
CITYSCAPES = [f"val/{city}/{city}_000000_{n:06d}" for city in ("frankfurt", "lindau") for n in range(3)]
ACDC = [f"{weather}/val/GOPR0475/GOPR0475_frame_{n:06d}" for weather in ("fog", "night") for n in range(2)]


def names(count):
    return [f"image{number:05d}" for number in range(count)]


def test_up_to_two_hundred_images_are_left_out_one_by_one_and_more_in_a_hundred_groups():
    assert image_groups(names(200)).count == 200
    many = image_groups(names(1234))
    assert many.count == GROUPS
    assert set(np.bincount(many.numbers)) == {12, 13}


def test_every_group_has_its_share_of_every_class():
    targets = np.repeat([0, 1], [900, 300])
    groups = image_groups(names(1200), targets)
    for number in (0, 1):
        assert set(np.bincount(groups.numbers[targets == number])) == {[9, 3][number]}


def test_groups_do_not_depend_on_the_order_of_the_images():
    ids, targets = np.array(names(500)), np.arange(500) % 7
    order = np.random.default_rng(0).permutation(500)
    straight, shuffled = image_groups(ids, targets), image_groups(ids[order], targets[order])
    np.testing.assert_array_equal(straight.numbers[order], shuffled.numbers)


def test_consecutive_frames_of_a_recording_are_left_out_together():
    groups = image_groups(CAMVID)
    assert groups.count == groups.independent == 7  # three blocks of 30 frames, four of 45
    assert not set(groups.numbers[:30]) & set(groups.numbers[30:])  # no block reaches into another recording
    assert (np.diff(groups.numbers[:30]) >= 0).all()
    assert image_groups(CITYSCAPES).count == len(CITYSCAPES)


def test_blocks_widen_the_interval_of_frames_that_are_alike():
    rows = np.repeat(np.random.default_rng(1).normal(size=8), 10)[:75, None]  # ten frames in a row say the same
    blocks, single = (
        jackknife_estimate(replicated_means(rows, groups)[:, 0]).error
        for groups in (image_groups(CAMVID), image_groups(names(75)))
    )
    assert blocks > 1.8 * single


@pytest.mark.parametrize("count", [7, 230])
def test_replicates_are_the_means_of_the_images_that_stay(count):
    rows = np.random.default_rng(0).random((count, 3))
    groups = image_groups(names(count))
    expected = [rows.mean(axis=0), *(rows[groups.without(group)].mean(axis=0) for group in range(groups.count))]
    np.testing.assert_allclose(replicated_means(rows, groups), expected, rtol=1e-12)


def test_the_standard_error_of_a_mean_is_the_textbooks():
    values = np.random.default_rng(2).random((50, 1))
    estimate = jackknife_estimate(replicated_means(values, image_groups(names(50)))[:, 0])
    assert estimate.error == pytest.approx(values.std(ddof=1) / np.sqrt(50))
    assert estimate.freedom == 49


def test_means_are_the_same_with_and_without_replicates():
    columns = {("clean", "right"): np.random.default_rng(3).random(300)}
    alone, both = replicate(columns, None), replicate(columns, image_groups(names(300)))
    assert alone["clean", "right"].tolist() == both["clean", "right"][:1].tolist()
    assert both["clean", "right"].shape == (1 + GROUPS,)
    assert dict(replicate({}, None)) == {}


def test_rows_of_other_images_are_refused():
    with pytest.raises(HoldfastError, match="a row for each of 5 images, got 4"):
        replicated_means(np.zeros((4, 1)), image_groups(names(5)))


@pytest.mark.parametrize(
    ("ids", "what", "groups"),
    [
        (CAMVID, "recording", {"0001TP", "Seq05VD"}),
        (CITYSCAPES, "city", {"frankfurt", "lindau"}),
        (ACDC, "condition", {"fog", "night"}),
    ],
)
def test_names_tell_recordings_cities_and_weather(ids, what, groups):
    grouping = grouping_of(ids)
    assert grouping.what == what
    assert set(groups_of(ids, grouping)) == groups


def test_other_names_tell_nothing():
    assert grouping_of(["a.jpg", "deep/b.png"]) is None
    assert grouping_of([*CAMVID, "a.jpg"]) is None
    assert grouping_of([]) is None
