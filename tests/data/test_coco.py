"""COCO's format: gapped categories, crowds, empty and grey images, masks of three kinds; and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holdfast.data.coco import counted_lengths, open_coco
from holdfast.data.detection_targets import run_lengths
from holdfast.data.scenes import open_scene_objects
from holdfast.errors import HoldfastError

SQUARE = [[2.0, 3.0, 8.0, 3.0, 8.0, 7.0, 2.0, 7.0]]
CROWD = {"size": [20, 30], "counts": [40, 60, 500]}
COCO128 = Path(__file__).parents[3] / "shared" / "data" / "coco128"


def content(**changes):
    """Two images with objects and one without; the categories' ids have gaps."""
    return {
        "images": [
            {"id": 9, "file_name": "b.png", "height": 20, "width": 30},
            {"id": 7, "file_name": "a.png", "height": 10, "width": 12},
            {"id": 12, "file_name": "c.png", "height": 10, "width": 12},
        ],
        "categories": [{"id": 90, "name": "toothbrush"}, {"id": 1, "name": "person"}, {"id": 13, "name": "stop sign"}],
        "annotations": [
            annotation(),
            annotation(id=2, image_id=9, category_id=90, bbox=[1, 1, 5, 5], area=25, segmentation=run_length(20, 30)),
            annotation(id=3, image_id=9, category_id=13, bbox=[2, 0, 3, 20], area=60, iscrowd=1, segmentation=CROWD),
        ],
        **changes,
    }


def annotation(**changes):
    row = {"id": 1, "image_id": 7, "category_id": 1, "bbox": [2.0, 3.0, 6.0, 4.0], "area": 20.5, "iscrowd": 0}
    return row | {"segmentation": SQUARE} | changes


def run_length(height, width):
    mask = np.zeros((1, height, width), np.uint8)
    mask[0, 1:6, 1:6] = 1
    (rle,) = run_lengths(mask)
    return {"size": [height, width], "counts": rle["counts"].decode()}


def write(folder, rows):
    for image in rows["images"] if isinstance(rows, dict) else ():
        size = image["width"], image["height"]
        mode = "L" if image["file_name"] == "c.png" else "RGB"
        Image.new(mode, size).save(folder / image["file_name"])
    (folder / "instances.json").write_text(json.dumps(rows))
    return f"{folder},{folder / 'instances.json'}"


def opened(folder, rows):
    return open_coco(write(folder, rows), split="val")


def test_labels_are_the_ranks_of_gapped_category_ids(tmp_path):
    source = opened(tmp_path, content())
    assert source.classes == ("person", "stop sign", "toothbrush")
    assert source.category_ids == (1, 13, 90)
    assert [source.id(index) for index in range(3)] == ["a.png", "b.png", "c.png"]
    assert [source.target(index).labels.tolist() for index in range(3)] == [[0], [2, 1], []]


def test_boxes_areas_crowds_and_masks_are_what_the_file_says(tmp_path):
    source = opened(tmp_path, content())
    one, two, none = (source.target(index) for index in range(3))
    assert one.boxes.tolist() == [[2, 3, 8, 7]]
    assert one.areas.tolist() == [20.5]
    assert one.bitmaps().sum() == 6 * 4
    assert two.crowds.tolist() == [False, True]
    assert two.bitmaps().shape == (2, 20, 30)
    assert two.bitmaps().sum(axis=(1, 2)).tolist() == [25, 60]
    assert len(none) == 0
    assert none.bitmaps().shape == (0, 10, 12)


def test_grey_images_are_read_in_colour(tmp_path):
    assert opened(tmp_path, content()).image(2).mode == "RGB"


def test_training_leaves_out_crowds_and_what_is_thinner_than_a_pixel(tmp_path):
    rows = content()
    rows["annotations"] += [
        annotation(id=4, image_id=9, bbox=[3, 3, 0.9, 8]),
        annotation(id=5, image_id=9, bbox=[-5, 3, 5.5, 8]),
        annotation(id=6, image_id=9, bbox=[25, 15, 20, 20]),
        annotation(id=7, image_id=9, bbox=[3, 3, 0, 0]),
    ]
    objects = opened(tmp_path, rows).target(1)
    assert len(objects) == 6
    kept = objects.trainable()
    assert kept.boxes.tolist() == [[1, 1, 6, 6], [25, 15, 30, 20]]
    assert len(kept.masks) == 2


def test_files_without_outlines_have_boxes_only(tmp_path):
    bare = annotation()
    del bare["segmentation"]
    assert opened(tmp_path, content(annotations=[bare])).target(0).masks is None


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], "must hold the lists images, categories and annotations, but images is missing or no list"),
        (
            {"images": []},
            "must hold the lists images, categories and annotations, but categories is missing or no list",
        ),
        (content(annotations=[]), "instances.json must annotate at least one object, got none"),
        (content(annotations=[annotation(iscrowd=1)]), "must annotate at least one object, got none"),
        (content(annotations=[annotation(category_id=2)]), "annotation 1 of .* a category in the file, got 2"),
        (content(annotations=[annotation(image_id=5)]), "annotation 1 of .* an image in the file, got image 5"),
        (content(annotations=[annotation(bbox=[1, 1, -3, 4])]), "bbox of annotation 1 .* none negative, got"),
        (content(annotations=[annotation(bbox=[1, 1, float("nan"), 4])]), "bbox of annotation 1 of instances.json"),
        (content(annotations=[annotation(bbox=[1, 1, 3])]), "must be x, y, width and height"),
        (content(annotations=[{"id": 1, "bbox": [1, 1, 2, 2]}]), "must have category_id, image_id"),
        (content(annotations=[annotation(segmentation=CROWD)]), "image's size 10×12, got .20, 30."),
        (content(annotations=[annotation(segmentation=[[1, 2, 3, 4]])]), "must have three points or more"),
        (content(annotations=[annotation(segmentation=[["a"] * 6])]), "must have three points or more"),
        (content(annotations=[annotation(area="x")]), "area of annotation 1 .* a number of pixels, 0 or more, got 'x'"),
        (content(annotations=[annotation(area=float("inf"))]), "area of annotation 1 .* 0 or more, got inf"),
        (content(annotations=[annotation(image_id=[7])]), "an image in the file, got image .7.$"),
        (content(annotations=[annotation(category_id={})]), "a category in the file, got {}$"),
        *(
            (
                content(images=[{"id": 7, "file_name": "a.png", "height": 10, "width": width}]),
                "width of image 'a.png' in",
            )
            for width in ("x", 0, float("inf"), None)
        ),
        (content(images=[{"id": [7], "file_name": "a.png", "height": 10, "width": 12}]), "ids of images .* got .7.$"),
        (content(categories=[{"id": "x"}]), "ids of categories in instances.json must be whole numbers, got 'x'"),
        *(
            (content(annotations=[annotation(segmentation={"size": [10, 12], "counts": counts})]), "counts of the mask")
            for counts in ("garbage", "~~~~", "é", [40, 60], [-1, 121], None, "PPPPPPPPPPPPPPPPPPPP")
        ),
        *(
            (content(images=[{"id": 7, "file_name": name, "height": 10, "width": 12}], annotations=[annotation()]), why)
            for name, why in (("../a.png", "below the image folder, got '../a.png'"), ("/etc/a.png", "below the image"))
        ),
        (content(categories=[{"id": 1}, {"id": 1}]), "categories of instances.json must be unique"),
        (content(images=[]), "must have images, got none"),
        (content(images=[{"id": 1, "file_name": "a.png"}]), "images of instances.json must have file_name, height, id"),
    ],
)
def test_what_cannot_be_right_is_refused_in_one_sentence(tmp_path, rows, sentence):
    (tmp_path / "instances.json").write_text(json.dumps(rows))
    with pytest.raises(HoldfastError, match=sentence):
        open_coco(f"{tmp_path},{tmp_path / 'instances.json'}", split="val")


def test_counted_lengths_are_those_of_the_library():
    rng = np.random.default_rng(0)
    masks = (rng.random((20, 37, 53)) < rng.random((20, 1, 1))).astype(np.uint8)
    for mask, rle in zip(masks, run_lengths(masks), strict=True):
        flat = np.concatenate([[0], mask.T.ravel()])  # by columns, and the first run is of zeros
        changes = np.flatnonzero(np.diff(flat, append=2))
        assert counted_lengths(rle["counts"].decode()) == np.diff(changes, prepend=0).tolist()


def test_an_image_of_another_size_than_its_annotations_is_refused(tmp_path):
    source = opened(tmp_path, content())
    Image.new("RGB", (11, 10)).save(tmp_path / "a.png")
    with pytest.raises(
        HoldfastError, match=r"'a.png' must have the size 10×12 that instances.json gives it, got 10×11"
    ):
        source.image(0)


@pytest.mark.parametrize(
    ("rest", "sentence"),
    [
        ("images", "must name a folder and a file, as in coco:IMAGES,ANNOTATIONS"),
        ("{}/nowhere,{}/instances.json", "IMAGES of .* must be a folder"),
        ("{},{}/nothing.json", "ANNOTATIONS of .* must be a JSON file, got .*No such file"),
        ("{},{}/a.png", "must be a JSON file, got .*not JSON"),
    ],
)
def test_wrong_paths_are_refused(tmp_path, rest, sentence):
    write(tmp_path, content())
    with pytest.raises(HoldfastError, match=sentence):
        open_coco(rest.format(tmp_path, tmp_path), split="val")


def test_the_digits_of_a_scene_are_its_objects():
    source = open_scene_objects("test,96x128,5", split="val")
    assert source.classes == tuple("0123456789")
    for index in range(len(source)):
        objects, scene = source.target(index), source.scenes.scene(index)
        assert objects.labels.tolist() == list(scene.digits)
        for number, (mask, box) in enumerate(zip(objects.bitmaps(), objects.boxes.astype(int), strict=True)):
            assert (mask == (scene.instances == number + 1)).all()
            x0, y0, x1, y1 = box
            assert mask[y0:y1, x0:x1].sum() == mask.sum() == objects.areas[number]


@pytest.mark.skipif(not COCO128.is_dir(), reason="COCO128 is not here; it is no part of the project")
def test_a_real_file_with_crowds_empty_and_grey_images():
    source = open_coco(f"{COCO128 / 'images'},{COCO128 / 'instances.json'}", split="val")
    objects = [source.target(index) for index in range(len(source))]
    assert (len(source), len(source.classes), sum(map(len, objects))) == (128, 80, 939)
    assert sum(int(found.crowds.sum()) for found in objects) == 10
    assert sum(len(found) == 0 for found in objects) == 2
    assert all(len(found.masks) == len(found) for found in objects)
    assert source.image(0).mode == "RGB"
