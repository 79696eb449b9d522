"""Objects of an image: what of them trains, and what is recorded."""

import numpy as np

from holdfast.data.detection_targets import Objects, recorded_fields, run_lengths
from holdfast.io.run_lengths import unpacked_masks


def objects():
    bitmaps = np.zeros((4, 10, 20), np.uint8)
    for number in range(4):
        bitmaps[number, number : number + 3, :5] = 1
    boxes = np.array([[-3.0, 2, 6, 8], [5, 5, 5.5, 9], [1, 1, 9, 9], [10, 0, 25, 12]])
    crowds = np.array([False, False, True, False])
    return Objects((10, 20), boxes, np.arange(4), np.array([50.0, 2, 64, 80]), crowds, run_lengths(bitmaps)), bitmaps


def test_masks_come_back_as_bitmaps():
    given, bitmaps = objects()
    np.testing.assert_array_equal(given.bitmaps(), bitmaps)
    without = Objects(given.size, given.boxes[:0], given.labels[:0], given.areas[:0], given.crowds[:0])
    assert without.bitmaps().shape == (0, 10, 20)


def test_trainable_objects_lie_in_the_image_and_are_no_crowds_and_not_thinner_than_a_pixel():
    given, bitmaps = objects()
    found = given.trainable()
    assert found.labels.tolist() == [0, 3]
    assert found.boxes.tolist() == [[0, 2, 6, 8], [10, 0, 20, 10]]
    np.testing.assert_array_equal(found.bitmaps(), bitmaps[[0, 3]])


def test_records_hold_everything_that_scores_need():
    given, _ = objects()
    fields = recorded_fields(given)
    assert fields["true_crowds"].tolist() == [0, 0, 1, 0]
    assert fields["true_areas"].tolist() == [50, 2, 64, 80]
    assert unpacked_masks(fields["true_masks"], fields["true_mask_lengths"], given.size) == list(given.masks)
