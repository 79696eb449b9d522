"""What breaks in a detector, counted by hand."""

import numpy as np
import pytest

from holdfast.metrics.detection_errors import DETECTIONS, OBJECTS, SIZES, breakage
from tests.metrics.test_average_precision import detection, found_fields, objects, truth_fields


def cell(images, found):
    return truth_fields(images) | found_fields(found, len(images))


def test_every_way_to_fail_is_told_apart():
    images = [
        objects(
            (0, (0, 0, 20, 20)),  # found, and found twice
            (1, (40, 0, 20, 20)),  # taken for another class
            (2, (0, 40, 20, 20)),  # badly placed
            (0, (70, 70, 20, 20)),  # found below the threshold only
            (1, (70, 30, 25, 25), True),  # a crowd
        ),
        objects(),
    ]
    found = [
        detection(0, 0, (0, 0, 20, 20), 0.92),
        detection(0, 0, (1, 0, 20, 20), 0.83),
        detection(0, 2, (40, 0, 20, 20), 0.74),
        detection(0, 2, (10, 40, 20, 20), 0.65),  # IoU 1/3
        detection(0, 0, (70, 70, 20, 20), 0.45),
        detection(0, 1, (72, 32, 10, 10), 0.95),  # in the crowd
        detection(1, 1, (0, 0, 10, 10), 0.55),
    ]
    told = breakage(cell(images, found))
    assert dict(zip(OBJECTS, told.objects[0].tolist(), strict=True)) == {
        "found": 1,
        "class": 1,
        "location": 1,
        "missed": 1,
    }
    assert dict(zip(DETECTIONS, told.detections.tolist(), strict=True)) == {
        "right": 1,
        "class": 1,
        "location": 1,
        "duplicate": 1,
        "background": 1,
    }
    assert told.recall == pytest.approx(3 / 4)  # all but the badly placed one, whatever class or score
    gaps = [1 - 0.92, 0.83, 0.74, 0.65, 1 - 0.45, 0.55]  # each in a bin of its own; two are right
    assert told.calibration == pytest.approx(100 * np.sum(gaps) / 6)


def test_an_object_in_a_crowd_region_is_found_all_the_same():
    crowd, image = (1, (0, 0, 60, 60), True), (0, (0, 0, 20, 20))
    for label in (0, 1):  # of its own class or another
        told = breakage(cell([objects(image, (label, crowd[1], True))], [detection(0, 0, (0, 0, 20, 20), 0.9)]))
        assert (told.objects[0].tolist(), told.detections.tolist(), told.recall) == ([1, 0, 0, 0], [1, 0, 0, 0, 0], 1)


def test_a_detection_in_a_crowd_region_of_another_class_is_an_error():
    told = breakage(cell([objects((1, (0, 0, 60, 60), True))], [detection(0, 0, (5, 5, 20, 20), 0.9)]))
    assert dict(zip(DETECTIONS, told.detections.tolist(), strict=True))["background"] == 1
    told = breakage(cell([objects((0, (0, 0, 60, 60), True))], [detection(0, 0, (5, 5, 20, 20), 0.9)]))
    assert told.detections.sum() == 0
    assert np.isnan(told.calibration)


def test_of_no_image_there_is_no_error():
    none = {name: values[:0] for name, values in cell([objects()], []).items()}
    told = breakage(none)
    assert told.objects.sum() == told.detections.sum() == 0
    assert np.isnan([told.recall, told.calibration]).all()


def test_objects_are_counted_by_their_size():
    images = [objects((0, (0, 0, 20, 20)), (0, (0, 50, 50, 40)), (0, (60, 0, 100, 100)), size=(200, 200))]
    told = breakage(cell(images, [detection(0, 0, (60, 0, 100, 100), 0.9, size=(200, 200))]))
    by_size = dict(zip(SIZES, told.objects.tolist(), strict=True))
    assert by_size["all"] == [1, 0, 0, 2]
    assert by_size["small"] == by_size["medium"] == [0, 0, 0, 1]
    assert by_size["large"] == [1, 0, 0, 0]


def test_a_cell_without_detections_has_missed_everything_and_no_calibration():
    told = breakage(cell([objects((0, (0, 0, 20, 20)))], []))
    assert told.objects[0].tolist() == [0, 0, 0, 1]
    assert told.recall == 0
    assert np.isnan(told.calibration)
