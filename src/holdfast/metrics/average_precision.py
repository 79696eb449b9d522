"""COCO average precision (AP), and its mean and relative value under corruption: mPC and rPC.

AP as COCO defines it, through faster-coco-eval. COCO-C, Michaelis et al. 2019: the AP of every cell's whole set, then
the mean over severities and kinds; FAN calls the ratio to the clean AP retention and averages over 16 other kinds.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from faster_coco_eval import COCO, COCOeval_faster
from faster_coco_eval.core import mask as coco_masks

from holdfast._deprecated import renamed
from holdfast.benchmarks import BENCHMARKS
from holdfast.corruptions.severities import SEVERITIES
from holdfast.errors import HoldfastError
from holdfast.metrics.corruption import percent_of_clean
from holdfast.records.detections import coco_found, coco_truth, has_masks

Overlap = Literal["bbox", "segm"]

# in the order in which COCO's evaluation gives them
SCORES = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")

COCO_C, COCO_C_FAN = BENCHMARKS["coco-c"].kinds, BENCHMARKS["coco-c-fan"].kinds


def coco_scores(
    truth: Mapping[str, Any], found: Sequence[Mapping[str, Any]], *, overlap: Overlap = "bbox"
) -> dict[str, float]:
    """COCO's twelve scores, 0 to 1: AP over IoU .50:.05:.95, at .50 and .75, by size, and recalls.

    NaN (−1 in COCO's own output) where there is no object, such as large objects in a set without any.

    Args:
        truth: images, categories and annotations in COCO format.
        found: detections with ``image_id``, ``category_id``, ``score``, and ``bbox`` (x y w h) or ``segmentation``.
        overlap: IoU of boxes or of masks. Detected masks count with their own area, not with their box's.
    """
    wanted = "bbox" if overlap == "bbox" else "segmentation"
    kept = [{name: row[name] for name in ("image_id", "category_id", "score", wanted)} for row in found]
    # copied, because the library adds keys to the annotations
    reference = COCO({**truth, "annotations": [dict(row) for row in truth["annotations"]]})
    evaluation = COCOeval_faster(reference, reference.loadRes(kept), overlap, rle_iou_max_workers=1)
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    values = [float(value) for value in evaluation.stats[: len(SCORES)]]
    return {name: np.nan if value < 0 else value for name, value in zip(SCORES, values, strict=True)}


def record_scores(fields: Mapping[str, Any]) -> dict[Overlap, dict[str, float]]:
    """COCO's twelve scores of one cell's records: of boxes and, if data and model have them, of masks."""
    masks = has_masks(fields)
    labels = [*fields["true_labels"], *fields["labels"]]
    classes = 1 + max(
        (int(found.max()) for found in labels if len(found)), default=0
    )  # classes above have neither objects nor detections, so COCO ignores them
    truth = coco_truth(fields, classes=classes, masks=masks)
    found = coco_found(fields, masks=masks)
    kinds: tuple[Overlap, ...] = ("bbox", "segm") if masks else ("bbox",)
    return {overlap: coco_scores(truth, found, overlap=overlap) for overlap in kinds}


def match_image(
    fields: Mapping[str, Any], image: int, *, score: float = 0.5, overlap: float = 0.5
) -> tuple[int, int, int]:
    """Match the detections of one image; returns the number of objects found, detections and objects.

    Detections of at least ``score`` take, best first, the free object of their class with the largest IoU, if that is
    at least ``overlap``. Unmatched detections inside a crowd region are ignored, as in COCO.
    """
    truth, crowds = to_xywh(fields["true_boxes"][image]), fields["true_crowds"][image]
    free = np.asarray(crowds == 0)
    wanted = int(free.sum())
    chosen = np.flatnonzero(fields["scores"][image] >= score)
    chosen = chosen[np.argsort(-fields["scores"][image][chosen], kind="stable")]
    if not len(chosen) or not len(truth):
        return 0, len(chosen), wanted
    boxes = to_xywh(fields["boxes"][image][chosen])
    ious = np.asarray(coco_masks.iou(boxes, truth, crowds.astype(int).tolist())).reshape(len(chosen), len(truth))
    ious[fields["labels"][image][chosen][:, None] != fields["true_labels"][image]] = 0
    found, counted = 0, len(chosen)
    for row in ious:
        best = int(np.argmax(np.where(free, row, -1)))
        if free[best] and row[best] >= overlap:
            found, free[best] = found + 1, False
        elif np.max(row, where=crowds > 0, initial=0) >= overlap:
            counted -= 1
    return found, counted, wanted


def to_xywh(boxes: np.ndarray) -> np.ndarray:
    """Boxes as COCO stores them, x y w h, from their corners."""
    return np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1).astype(np.float64)


def mean_performance(scores: Mapping[str, Sequence[float]], *, kinds: Sequence[str] = COCO_C) -> float:
    """mPC: the mean over kinds of the mean over five severities of a score, usually AP.

    Michaelis et al. 2019, Eq. 1; ``kinds=COCO_C_FAN`` gives FAN's. The two differ by about two points: do not compare.
    """
    missing = [kind for kind in kinds if kind not in scores]
    if missing:
        raise HoldfastError(f"scores must have {len(kinds)} kinds, but these are missing: {', '.join(missing)}")
    return float(np.mean([_five(scores[kind], kind).mean() for kind in kinds]))


def relative_performance(corrupted: float, clean: float) -> float:
    """rPC in percent: mPC divided by the clean score (FAN: retention); NaN for a clean score of 0."""
    return float(percent_of_clean(corrupted, clean))


def _five(values: Sequence[float], kind: str) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (len(SEVERITIES),) or not np.isfinite(array).all():
        raise HoldfastError(f"scores of {kind} must be {len(SEVERITIES)} numbers, one per severity, got {values}")
    return array


__getattr__ = renamed(__name__)
