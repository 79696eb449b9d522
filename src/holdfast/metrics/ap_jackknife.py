"""Jackknife replicates of average precision: AP of a cell's images, and AP without each group of images.

The contribution of an image (which detections are correct, at which score) does not depend on other images. So
faster-coco-eval matches every image once, and leaving out a group only removes its detections and objects. Interpolated
precision is a maximum over later detections and is reached at a true positive; so it is enough to follow the true
positives, which makes all replicates together about as expensive as one evaluation.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from faster_coco_eval import COCO, COCOeval_faster
from numpy.typing import NDArray

from holdfast.metrics.average_precision import Overlap
from holdfast.metrics.jackknife import Groups
from holdfast.records.detections import coco_found, coco_truth, has_masks

ALL_SIZES, DETECTIONS = [0.0, 1e10], 100
THRESHOLDS = np.linspace(0.5, 0.95, 10)  # COCO's IoU thresholds
RECALLS = np.linspace(0, 1, 101)  # COCO interpolates the precision at 101 recalls, PASCAL VOC 2007 at 11
SCORES = {"AP": slice(None), "AP50": slice(0, 1), "AP75": slice(5, 6)}  # thresholds that each score averages


@dataclass(frozen=True, eq=False)
class Matches:
    """Matched detections of one category, best first.

    Attributes:
        images: image index of every detection, (D,).
        right: whether it is a true positive, (thresholds, D).
        counted: whether it counts; detections in crowd regions are ignored, (thresholds, D).
        objects: number of objects of every image, (images,).
    """

    images: NDArray[np.int64]
    right: NDArray[np.bool_]
    counted: NDArray[np.bool_]
    objects: NDArray[np.int64]


def replicated_precision(
    fields: Mapping[str, Any], groups: Groups | None, *, overlap: Overlap = "bbox"
) -> dict[str, NDArray[np.float64]]:
    """AP, AP50 and AP75 (all sizes, 100 detections) of a cell, 0 to 1, (1 + groups,): all images first.

    Categories without objects in the remaining images do not count; NaN if there is no object at all.
    Without groups the arrays are (1,).
    """
    if groups is not None:
        return precision_of_matches(_matches(fields, overlap), groups)
    images = len(fields["size"])
    alone = Groups(np.zeros(images, np.int64), 1, images)
    return {name: values[:1] for name, values in replicated_precision(fields, alone, overlap=overlap).items()}


def precision_of_matches(categories: Iterable[Matches], groups: Groups) -> dict[str, NDArray[np.float64]]:
    """AP, AP50 and AP75 with replicates from the matched detections of every category."""
    rows = [_category_precision(each, groups) for each in categories]
    if not rows:
        return {name: np.full(1 + groups.count, np.nan) for name in SCORES}
    precision = np.stack(rows)  # categories, thresholds, 1 + groups
    there = ~np.isnan(precision[:, 0])
    totals = np.where(there[:, None], precision, 0.0).sum(axis=0)
    with np.errstate(invalid="ignore"):
        means = totals / there.sum(axis=0)
    return {name: means[chosen].mean(axis=0) for name, chosen in SCORES.items()}


def cell_replicates(fields: Mapping[str, Any], groups: Groups | None) -> dict[str, NDArray[np.float64]]:
    """Replicates of boxes and, if data and model have them, of masks: ``box_AP``, ``mask_AP50`` …"""
    kinds: dict[str, Overlap] = {"box": "bbox", **({"mask": "segm"} if has_masks(fields) else {})}
    return {
        f"{kind}_{name}": values
        for kind, overlap in kinds.items()
        for name, values in replicated_precision(fields, groups, overlap=overlap).items()
    }


def _category_precision(found: Matches, groups: Groups) -> NDArray[np.float64]:
    """AP of one category at every threshold, (thresholds, 1 + groups); NaN where no object remains."""
    of_group = np.bincount(groups.numbers, weights=found.objects, minlength=groups.count)
    objects = found.objects.sum() - np.concatenate([[0], of_group]).astype(np.int64)  # 1 + groups
    if not objects.any():
        return np.full((len(THRESHOLDS), 1 + groups.count), np.nan)
    needed = _needed_hits(objects)
    numbers = 1 + groups.numbers[found.images]  # column 0 is the score of all images
    rows = [
        _interpolated_precision(right, counted, numbers, needed)
        for right, counted in zip(found.right, found.counted, strict=True)
    ]
    return np.where(objects > 0, np.stack(rows), np.nan)


def _needed_hits(objects: NDArray[np.int64]) -> NDArray[np.int64]:
    """True positives needed for each recall, (recalls, 1 + groups): the smallest m with m / objects ≥ recall."""
    at_least = np.maximum(objects, 1)
    fewest = np.floor(RECALLS[:, None] * at_least).astype(np.int64)
    for _ in range(2):  # COCO compares rounded quotients, so the float comparison itself decides, not a ceiling
        fewest = fewest + (fewest / at_least < RECALLS[:, None])
    lower = np.maximum(fewest - 1, 0)
    return np.where(lower / at_least >= RECALLS[:, None], lower, fewest)


def _interpolated_precision(
    right: NDArray[np.bool_], counted: NDArray[np.bool_], numbers: NDArray[np.int64], needed: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Interpolated AP: mean over recalls of the best precision at that recall or above, (1 + groups,)."""
    columns = needed.shape[1]
    hits = np.flatnonzero(right & counted)
    if not len(hits):
        return np.zeros(columns)
    # counted detections of every group up to each hit: those that leaving the group out removes
    chosen = np.flatnonzero(counted[: hits[-1] + 1])
    before = np.searchsorted(hits, chosen)  # index of the first hit at or after the detection
    removed = np.bincount(before * columns + numbers[chosen], minlength=len(hits) * columns)
    removed = removed.reshape(len(hits), columns).cumsum(axis=0)
    own = np.zeros((len(hits), columns), np.int64)
    own[np.arange(len(hits)), numbers[hits]] = 1
    found = np.arange(1, len(hits) + 1)[:, None] - own.cumsum(axis=0)
    seen = np.searchsorted(chosen, hits, side="right")[:, None] - removed
    # a hit of the left-out group is no point of the replicate's curve: 0 never wins the maximum below
    precision = np.where(own == 0, found / np.maximum(seen, 1), 0.0)
    best = np.maximum.accumulate(precision[::-1], axis=0)[::-1]
    best = np.concatenate([best, np.zeros((1, columns))])  # recalls that are never reached have precision 0
    return np.take_along_axis(best, _first_reaching(found, needed), axis=0).mean(axis=0)


def _first_reaching(found: NDArray[np.int64], needed: NDArray[np.int64]) -> NDArray[np.int64]:
    """First row of every column with the needed number of hits; the number of rows if there is none."""
    rows, columns = found.shape
    shift = np.arange(columns) * (rows + 2)  # offsets make all columns one sorted array, so one search suffices
    wanted = np.minimum(needed, rows + 1) + shift
    places = np.searchsorted((found + shift).T.ravel(), wanted.T.ravel()).reshape(columns, -1).T
    return np.clip(places - np.arange(columns) * rows, 0, rows)


def _matches(fields: Mapping[str, Any], overlap: Overlap) -> Iterator[Matches]:
    """Yield the matched detections of every category, from the pickling state of the library's results."""
    masks = overlap == "segm"
    labels = [*fields["true_labels"], *fields["labels"]]
    classes = 1 + max((int(found.max()) for found in labels if len(found)), default=0)
    truth = COCO(coco_truth(fields, classes=classes, masks=masks))
    wanted = "segmentation" if masks else "bbox"
    found = [
        {name: row[name] for name in ("image_id", "category_id", "score", wanted)}
        for row in coco_found(fields, masks=masks)
    ]
    evaluation = COCOeval_faster(truth, truth.loadRes(found), overlap, separate_eval=True, rle_iou_max_workers=1)
    evaluation.params.areaRng, evaluation.params.areaRngLbl = [ALL_SIZES], ["all"]
    evaluation.params.maxDets = [DETECTIONS]
    evaluation.evaluate()
    images = len(fields["size"])
    for category in range(len(evaluation.params.catIds)):
        yield _category(evaluation._evalImgs_cpp[category * images : (category + 1) * images])


def _category(images: list[Any]) -> Matches:
    scores, numbers, right, ignored, objects = [], [], [], [], []
    for number, image in enumerate(images):
        matched, _, held, crowds, passed, *_ = image.__getstate__()
        objects.append(len(crowds) - sum(crowds))
        if held:
            scores += held
            numbers += [number] * len(held)
            right.append(np.array(matched, np.int64).reshape(len(THRESHOLDS), -1) > 0)
            ignored.append(np.array(passed, np.bool_).reshape(len(THRESHOLDS), -1))
    order = np.argsort(-np.array(scores, np.float64), kind="stable")
    none = np.zeros((len(THRESHOLDS), 0), np.bool_)
    return Matches(
        np.array(numbers, np.int64)[order],
        np.concatenate([none, *right], axis=1)[:, order],
        ~np.concatenate([none, *ignored], axis=1)[:, order],
        np.array(objects, np.int64),
    )
