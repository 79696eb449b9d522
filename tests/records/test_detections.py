"""Recorded detections in COCO's format, against an image written by hand."""

import numpy as np
import pytest

from holdfast.data.detection_targets import run_lengths
from holdfast.errors import HoldfastError
from holdfast.io.run_lengths import packed_masks
from holdfast.records.detections import coco_found, coco_truth, has_masks

MASK = np.zeros((1, 6, 8), np.uint8)
MASK[0, 1:3, 2:6] = 1
MASKS, LENGTHS = packed_masks(run_lengths(MASK))
FIELDS = {
    "size": [np.array([6, 8])],
    "masked": np.array([1]),
    "boxes": (np.array([[2, 1, 6, 3]], np.float32),),
    "labels": (np.array([4]),),
    "scores": (np.array([0.5]),),
    "masks": (MASKS,),
    "mask_lengths": (LENGTHS,),
    "true_boxes": (np.array([[2.0, 1, 6, 3]]),),
    "true_labels": (np.array([4]),),
    "true_areas": (np.array([7.5]),),
    "true_crowds": (np.array([1]),),
    "true_masks": (MASKS,),
    "true_mask_lengths": (LENGTHS,),
}


def test_boxes_have_width_and_height_and_categories_start_at_one():
    (found,) = coco_found(FIELDS, masks=False)
    assert found == {"image_id": 0, "category_id": 5, "bbox": [2, 1, 4, 2], "score": 0.5}
    truth = coco_truth(FIELDS, classes=6, masks=False)
    assert truth["images"] == [{"id": 0, "height": 6, "width": 8}]
    assert [each["id"] for each in truth["categories"]] == [1, 2, 3, 4, 5, 6]
    (annotation,) = truth["annotations"]
    assert annotation == {
        "image_id": 0,
        "category_id": 5,
        "bbox": [2, 1, 4, 2],
        "id": 1,
        "area": 7.5,
        "iscrowd": 1,
    }


def test_masks_are_those_of_the_records():
    (expected,) = run_lengths(MASK)
    assert coco_found(FIELDS, masks=True)[0]["segmentation"] == expected
    assert coco_truth(FIELDS, classes=6, masks=True)["annotations"][0]["segmentation"] == expected


def test_masks_count_only_where_every_image_has_them():
    assert has_masks(FIELDS)
    assert not has_masks({"masked": np.array([1, 0])})
    assert not has_masks({"masked": np.array([])})
    with pytest.raises(HoldfastError, match="must have the field 'masked'"):
        has_masks({})
