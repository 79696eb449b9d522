"""COCO's scores against pycocotools and by hand; mPC and rPC against the published tables."""

import copy
import csv
from pathlib import Path

import numpy as np
import pytest

from holdfast.corruptions.severities import ALL, STANDARD
from holdfast.data.detection_targets import Objects, recorded_fields, run_lengths
from holdfast.errors import HoldfastError
from holdfast.io.run_lengths import packed_masks
from holdfast.metrics.average_precision import (
    COCO_C,
    COCO_C_FAN,
    SCORES,
    coco_scores,
    match_image,
    mean_performance,
    record_scores,
    relative_performance,
)
from holdfast.records.detections import coco_truth

REFERENCE = Path(__file__).parents[1] / "golden" / "coco_c_reference.csv"


def objects(*rows, size=(100, 100)):
    """Rows of class, box as x y w h, and whether it is a crowd."""
    boxes = np.array([[x, y, x + w, y + h] for _, (x, y, w, h), *_ in rows], float).reshape(-1, 4)
    crowds = np.array([bool(rest and rest[0]) for _, _, *rest in rows], bool)
    sides = boxes[:, 2:] - boxes[:, :2]
    labels = np.array([label for label, *_ in rows], np.int64)
    return Objects(size, boxes, labels, sides.prod(axis=1), crowds, run_lengths(painted(boxes, size)))


def truth_fields(images):
    rows = [recorded_fields(found) for found in images]
    masked = np.array([found.masks is not None for found in images])
    return {"size": np.array([found.size for found in images]), "masked": masked} | {
        key: tuple(row[key] for row in rows) for key in rows[0]
    }


def as_coco(images, *, classes):
    return coco_truth(truth_fields(images), classes=classes, masks=True)


def found_fields(found, images):
    """Detections in COCO's format as records keep them."""
    fields = {"boxes": [], "labels": [], "scores": [], "masks": [], "mask_lengths": []}
    for number in range(images):
        mine = [row for row in found if row["image_id"] == number]
        boxes = np.array([row["bbox"] for row in mine], np.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        masks, lengths = packed_masks([row["segmentation"] for row in mine])
        fields["boxes"].append(boxes)
        fields["labels"].append(np.array([row["category_id"] - 1 for row in mine], np.int32))
        fields["scores"].append(np.array([row["score"] for row in mine], np.float32))
        fields["masks"].append(masks)
        fields["mask_lengths"].append(lengths)
    return {key: tuple(values) for key, values in fields.items()}


def painted(boxes, size):
    masks = np.zeros((len(boxes), *size), np.uint8)
    for mask, (x0, y0, x1, y1) in zip(masks, np.round(boxes).astype(int), strict=True):
        mask[max(0, y0) : y1, max(0, x0) : x1] = 1
    return masks


def detection(image, label, box, score, *, size=(100, 100)):
    x, y, w, h = box
    (mask,) = run_lengths(painted(np.array([[x, y, x + w, y + h]], float), size))
    return {"image_id": image, "category_id": label + 1, "bbox": list(box), "score": score, "segmentation": mask}


def test_the_case_that_was_done_by_hand():
    """Class 0: precision 1 up to recall .5, then 2/3 while IoU .62 counts; class 1: a false positive first; 2: none."""
    truth = as_coco(
        [
            objects((0, (0, 0, 20, 20)), (0, (50, 50, 20, 20))),
            objects((1, (10, 10, 40, 40)), (1, (60, 0, 40, 100), True)),
            objects(),
        ],
        classes=3,
    )
    found = [
        detection(0, 0, (0, 0, 20, 20), 0.9),
        detection(0, 0, (30, 0, 10, 10), 0.8),
        detection(0, 0, (50, 50, 20, 12.4), 0.7),
        detection(1, 1, (62, 5, 10, 10), 0.95),
        detection(1, 1, (75, 50, 10, 10), 0.94),
        detection(1, 1, (10, 10, 40, 40), 0.6),
        detection(2, 1, (0, 0, 30, 30), 0.99),
    ]
    scores = coco_scores(truth, found)
    assert scores["AP"] == pytest.approx(0.5519802, abs=1e-7)
    assert scores["AP50"] == pytest.approx(0.6674917, abs=1e-7)
    assert scores["AP75"] == pytest.approx(0.5024752, abs=1e-7)


def random_case(seed):
    """Crowds, empty images, ties, false positives, several sizes and classes, more than 100 of one class."""
    rng = np.random.default_rng(seed)
    images, found = [], []
    for number in range(12):
        rows = []
        for _ in range(int(rng.integers(0, 7)) * (number % 4 != 0)):
            side = float(rng.choice([10, 50, 120]))
            box = (*rng.integers(0, 120, 2).astype(float), side, side * float(rng.uniform(0.5, 1.5)))
            rows.append((int(rng.integers(4)), box, bool(rng.random() < 0.15)))
        images.append(objects(*rows, size=(250, 260)))
        guesses = [(label, box) for label, box, *_ in rows for _ in range(2)]
        guesses += [(int(rng.integers(4)), (*rng.uniform(0, 100, 2), 30.0, 20.0)) for _ in range(3)]
        if number == 5:
            guesses += [(1, (*rng.uniform(0, 150, 2), 25.0, 25.0)) for _ in range(120)]
        for label, box in guesses:
            moved = tuple(np.round(np.array(box) + rng.normal(0, 2, 4) * (rng.random() < 0.7), 1).clip(0.5).tolist())
            found.append(detection(number, label, moved, float(rng.integers(1, 9)) / 8, size=(250, 260)))  # ties
    return images, found


def random_truth_and_found(seed):
    images, found = random_case(seed)
    return as_coco(images, classes=5), found


def by_pycocotools(truth, found, overlap):
    coco = pytest.importorskip("pycocotools.coco")
    from pycocotools.cocoeval import COCOeval

    reference = coco.COCO()
    reference.dataset = copy.deepcopy(truth)
    reference.createIndex()
    wanted = "bbox" if overlap == "bbox" else "segmentation"
    rows = [{key: row[key] for key in ("image_id", "category_id", "score", wanted)} for row in found]
    evaluation = COCOeval(reference, reference.loadRes(copy.deepcopy(rows)), overlap)
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return dict(zip(SCORES, np.where(evaluation.stats < 0, np.nan, evaluation.stats), strict=True))


@pytest.mark.parametrize("overlap", ["bbox", "segm"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_scores_are_those_of_pycocotools(seed, overlap):
    truth, found = random_truth_and_found(seed)
    ours = coco_scores(truth, found, overlap=overlap)
    assert ours == pytest.approx(by_pycocotools(truth, found, overlap), abs=1e-9, nan_ok=True)
    assert 0 < ours["AP"] < 1


@pytest.mark.parametrize("seed", [0, 1])
def test_records_give_the_same_scores(seed):
    images, found = random_case(seed)
    truth = as_coco(images, classes=5)
    scores = record_scores(truth_fields(images) | found_fields(found, len(images)))
    assert scores["bbox"] == pytest.approx(coco_scores(truth, found), abs=1e-6, nan_ok=True)
    assert scores["segm"] == pytest.approx(coco_scores(truth, found, overlap="segm"), abs=1e-6, nan_ok=True)


def test_records_without_masks_are_scored_by_boxes_alone():
    images, found = random_case(0)
    fields = truth_fields(images) | found_fields(found, len(images))
    assert set(record_scores(fields)) == {"bbox", "segm"}
    assert set(record_scores(fields | {"masked": np.zeros(len(images))})) == {"bbox"}


def test_a_model_with_masks_that_finds_nothing_scores_zero_in_masks_too():
    images, _ = random_case(0)
    scores = record_scores(truth_fields(images) | found_fields([], len(images)))
    assert scores["segm"]["AP"] == 0


def test_what_was_found_in_one_image_by_hand():
    images = [
        objects((0, (0, 0, 20, 20)), (0, (50, 50, 20, 20)), (1, (70, 0, 30, 40), True)),
        objects(),
    ]
    found = [
        detection(0, 0, (0, 0, 20, 20), 0.9),  # right
        detection(0, 0, (0, 1, 20, 20), 0.8),  # the same object again
        detection(0, 1, (50, 50, 20, 20), 0.7),  # the other class
        detection(0, 1, (75, 5, 10, 10), 0.6),  # in the crowd: nothing
        detection(0, 0, (50, 50, 20, 20), 0.4),  # not sure enough
        detection(1, 0, (0, 0, 10, 10), 0.5),
    ]
    fields = truth_fields(images) | found_fields(found, 2)
    assert match_image(fields, 0) == (1, 3, 2)
    assert match_image(fields, 0, score=0.3) == (2, 4, 2)
    assert match_image(fields, 1) == (0, 1, 0)


def test_scoring_leaves_ground_truth_and_detections_as_they_were():
    truth, found = random_truth_and_found(0)
    before = copy.deepcopy((truth, found))
    first = coco_scores(truth, found, overlap="segm")
    assert (truth, found) == before
    assert coco_scores(truth, found, overlap="segm") == pytest.approx(first, nan_ok=True)


def test_finding_nothing_scores_zero_and_sizes_that_do_not_occur_score_nothing():
    truth = as_coco([objects((0, (0, 0, 10, 10)))], classes=1)
    scores = coco_scores(truth, [])
    assert scores["AP"] == scores["AR100"] == scores["APs"] == 0
    assert np.isnan(scores["APl"])


def test_the_ground_truth_itself_scores_one():
    truth, _ = random_truth_and_found(1)
    perfect = [row | {"score": 1.0} for row in truth["annotations"] if not row["iscrowd"]]
    assert coco_scores(truth, perfect, overlap="segm")["AP"] == pytest.approx(1)


def test_the_two_protocols_have_15_and_16_kinds():
    assert COCO_C == STANDARD
    assert len(COCO_C_FAN) == 16
    assert set(COCO_C_FAN) == set(ALL) - {"zoom_blur", "elastic_transform", "pixelate"}


PUBLISHED = {  # clean AP, mPC, rPC in percent, from the benchmark authors' own table
    ("faster_rcnn", "bbox"): (36.3, 18.2, 50.1),
    ("mask_rcnn", "bbox"): (37.3, 18.7, 50.1),
    ("mask_rcnn", "segm"): (34.2, 16.8, 49.1),
    ("cascade_rcnn", "bbox"): (40.4, 20.1, 49.7),
    ("cascade_mask_rcnn", "bbox"): (41.2, 20.7, 50.2),
    ("cascade_mask_rcnn", "segm"): (35.7, 17.6, 49.3),
}
UNDER_FANS_KINDS = {"faster": (20.47, 56.4), "mask": (20.98, 56.3), "cascade_mask": (23.27, 56.4)}


@pytest.fixture(scope="module")
def reference():
    cells = {}
    with REFERENCE.open() as file:
        for row in csv.DictReader(file):
            detector = cells.setdefault((row["model"].partition("_r50")[0], row["task"]), {})
            detector.setdefault(row["corruption"], []).append(float(row["AP"]))
    return cells


@pytest.mark.parametrize("detector", PUBLISHED)
def test_published_mpc_and_rpc_follow_from_the_published_cells(reference, detector):
    cells = reference[detector]
    clean, corrupted, relative = PUBLISHED[detector]
    mpc = mean_performance(cells)
    assert 100 * cells["none"][0] == pytest.approx(clean, abs=0.05)
    assert 100 * mpc == pytest.approx(corrupted, abs=0.05)
    assert relative_performance(mpc, cells["none"][0]) == pytest.approx(relative, abs=0.05)


@pytest.mark.parametrize("name", UNDER_FANS_KINDS)
def test_fans_kinds_flatter_the_same_detectors(reference, name):
    cells = reference[f"{name}_rcnn", "bbox"]
    mpc = mean_performance(cells, kinds=COCO_C_FAN)
    assert (100 * mpc, relative_performance(mpc, cells["none"][0])) == pytest.approx(UNDER_FANS_KINDS[name], abs=0.05)


def test_an_incomplete_table_has_no_mpc():
    with pytest.raises(HoldfastError, match="must have 15 kinds, but these are missing: fog"):
        mean_performance({kind: [0.1] * 5 for kind in STANDARD if kind != "fog"})
    with pytest.raises(HoldfastError, match="scores of fog must be 5 numbers"):
        mean_performance({kind: [0.1] * (4 if kind == "fog" else 5) for kind in STANDARD})
    assert np.isnan(relative_performance(0.1, 0))  # as retention: nothing can be kept of nothing
