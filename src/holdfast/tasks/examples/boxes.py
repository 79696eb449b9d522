"""Example images of detection: true and detected boxes and masks drawn over the picture."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from faster_coco_eval.core import mask as coco_masks
from PIL import Image

from holdfast.errors import HoldfastError
from holdfast.io.run_lengths import unpacked_masks
from holdfast.metrics.average_precision import match_image
from holdfast.plotting.annotate import draw_boxes
from holdfast.records.records import CellRecord
from holdfast.tasks.examples.base import Examples, ExampleView, Kept, class_name

SCORE = 0.5  # score threshold of detections that are drawn and counted
FIELDS = ("size", "boxes", "labels", "scores", "true_boxes", "true_labels", "true_crowds")
MASKS = ("masks", "mask_lengths", "true_masks", "true_mask_lengths")


class BoxExamples(Examples):
    """Examples of detection: records hold all boxes and masks."""

    side = 224
    in_records = True

    def hardness(self, cell: CellRecord) -> np.ndarray:
        """1 − F1 of every image, at score and IoU ½."""
        return 1.0 - cell.right

    def recorded_answer(self, cell: CellRecord, row: int) -> Kept:
        """Boxes, classes, scores and masks, in the image's own pixels."""
        return {name: np.asarray(cell.fields[name][row]) for name in (*FIELDS, *MASKS)}

    def predicted_answer(self, answer: Any, target: Any, *, size: tuple[int, int], cell: str) -> Kept:
        """Raise an error: records of detection hold the detections."""
        raise HoldfastError("records of detection hold the detections; use recorded_answer")

    def truth(self, picture: Image.Image, kept: Kept, names: Sequence[str]) -> ExampleView:
        """Draw every object of the ground truth."""
        labels = kept["true_labels"]
        masks = recorded_masks(kept, "true_")
        return ExampleView(
            _count_labels(labels, names), picture=draw_boxes(picture, kept["size"], kept["true_boxes"], labels, masks)
        )

    def answer(self, picture: Image.Image, kept: Kept, names: Sequence[str]) -> ExampleView:
        """Draw the detections with a score of ½ or more."""
        sure = kept["scores"] >= SCORE
        hit, seen, there = match_image({name: (values,) for name, values in kept.items()}, 0)
        right = 2 * hit / (seen + there) if seen + there else 1.0
        words = f"{hit} of {there} found" + (f", {seen - hit} wrongly" if seen > hit else "")
        masks = recorded_masks(kept, "")
        masks = masks[sure] if len(masks) else masks
        shown = draw_boxes(picture, kept["size"], kept["boxes"][sure], kept["labels"][sure], masks)
        return ExampleView(words, float(right), shown)


def recorded_masks(kept: Kept, prefix: str) -> np.ndarray:
    """Decode the recorded masks of an image, bool (objects, H, W); ``prefix`` is ``true_`` for the ground truth."""
    lengths = kept[f"{prefix}mask_lengths"]
    if not len(lengths):
        return np.zeros((0, 1, 1), bool)
    masks = coco_masks.decode(unpacked_masks(kept[f"{prefix}masks"], lengths, kept["size"].tolist()))
    return np.moveaxis(np.asarray(masks, bool), -1, 0)


def _count_labels(labels: np.ndarray, names: Sequence[str]) -> str:
    classes, counts = np.unique(labels, return_counts=True)
    counted = [f"{count} × {class_name(int(each), names)}" for each, count in zip(classes, counts, strict=True)]
    return ", ".join(counted) or "nothing"


BOX_EXAMPLES = BoxExamples()
