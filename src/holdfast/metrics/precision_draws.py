"""How sure an average precision is: AP of images drawn with replacement.

AP belongs to a whole set, so every draw is accumulated anew. What an image contributes (which detections are right, at
which score) does not depend on the others: faster-coco-eval matches every image once (``separate_eval``), and a draw is
a list of such results, with an image as often in it as it was drawn.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import faster_coco_eval.faster_eval_api_cpp as _C
import numpy as np
from faster_coco_eval import COCO, COCOeval_faster
from numpy.typing import NDArray

from holdfast.metrics.average_precision import Overlap
from holdfast.records.detections import coco_found, coco_truth, has_masks

ALL_SIZES, DETECTIONS = [0.0, 1e10], 100
TOGETHER = 500_000  # categories × images of the draws that are accumulated in one call
Tell = Callable[[int], None]  # so many draws are done


def drawn_images(images: int, *, resamples: int, seed: int = 0) -> NDArray[np.int64]:
    """Which images every draw holds, (resamples, images): the same for all cells and models of these images."""
    return np.random.default_rng(seed).integers(images, size=(resamples, images))


def drawn_precision(
    fields: Mapping[str, Any], draws: NDArray[np.int64], *, overlap: Overlap = "bbox", tell: Tell | None = None
) -> NDArray[np.float64]:
    """AP (IoU .50:.05:.95, all sizes, 100 detections) of every draw of a cell's images, 0 to 1; NaN for no objects.

    Args:
        fields: of a cell's records.
        draws: numbers of images, a row per draw; ``np.arange`` gives the set itself.
        overlap: of boxes or of masks.
        tell: is told how many draws are done.
    """
    matched, categories, params = _matched(fields, overlap)
    images = len(fields["size"])
    rows = [matched[place * images : (place + 1) * images] for place in range(categories)]
    step = max(1, TOGETHER // max(1, categories * draws.shape[1]))
    values: list[float] = []
    for start in range(0, len(draws), step):
        some = draws[start : start + step].tolist()
        # to the library every draw is a set of categories of its own: one call, whose threads start once
        params.imgIds, params.catIds = list(range(draws.shape[1])), list(range(len(some) * categories))
        found = _C.COCOevalAccumulate(params, [row[i] for chosen in some for row in rows for i in chosen])
        values += _precisions(found, draws=len(some))
        if tell is not None:
            tell(len(values))
    return np.array(values)


def cell_draws(fields: Mapping[str, Any], draws: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """AP of boxes and, where data and model have them, of masks: of the cell itself first, then of every draw."""
    with_itself = (
        [np.arange(len(fields["size"]))[None], draws] if len(draws) else [np.arange(len(fields["size"]))[None]]
    )
    every = np.concatenate(with_itself)
    names: dict[str, Overlap] = {"box_ap": "bbox", **({"mask_ap": "segm"} if has_masks(fields) else {})}
    return {name: drawn_precision(fields, every, overlap=overlap) for name, overlap in names.items()}


def _matched(fields: Mapping[str, Any], overlap: Overlap) -> tuple[list[Any], int, Any]:
    """What every image contributes, category by category; how many categories; and how it is accumulated."""
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
    return evaluation._evalImgs_cpp, len(evaluation.params.catIds), copy.deepcopy(evaluation._paramsEval)


def _precisions(accumulated: Mapping[str, Any], *, draws: int) -> list[float]:
    """Of every draw the mean over thresholds, recalls and the categories that have objects."""
    precision = np.asarray(accumulated["precision"]).reshape(accumulated["counts"])  # thresholds recalls categories …
    parts = np.split(precision, draws, axis=2)
    return [float(part[part > -1].mean()) if (part > -1).any() else float("nan") for part in parts]


def mean_draws(cells: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The mean of several cells' draws, draw by draw."""
    return np.mean(np.stack(cells), axis=0)
