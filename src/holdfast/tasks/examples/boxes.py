"""Example images of detection: true and detected boxes and masks drawn over the picture."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from faster_coco_eval.core import mask as coco_masks
from PIL import Image, ImageDraw

from holdfast.errors import HoldfastError
from holdfast.io.run_lengths import unpacked_masks
from holdfast.metrics.average_precision import match_image
from holdfast.plotting.class_colours import class_colour
from holdfast.records.records import CellRecord
from holdfast.tasks.examples.base import Examples, ExampleView, Kept, class_name

SCORE = 0.5  # score threshold of detections that are drawn and counted
OPACITY = 0.45  # of masks
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


def draw_boxes(
    picture: Image.Image,
    size: Sequence[int] | np.ndarray,
    boxes: np.ndarray,
    labels: np.ndarray,
    masks: np.ndarray,
    *,
    names: Sequence[str] = (),
) -> Image.Image:
    """Draw boxes, and masks if there are any, in the colours of their classes.

    Args:
        picture: image of any size.
        size: height and width of the image that boxes and masks refer to.
        boxes: x0 y0 x1 y1, (n, 4).
        labels: class indices, (n,).
        masks: bool (n, H, W), or empty.
        names: caption of every box, if any.
    """
    pixels = np.array(picture.convert("RGB"), dtype=np.float64)
    for mask, label in zip(masks, labels, strict=False):
        there = np.array(Image.fromarray(mask).resize(picture.size, Image.Resampling.NEAREST))
        pixels[there] = (1 - OPACITY) * pixels[there] + OPACITY * np.array(class_colour(int(label)))
    drawn = Image.fromarray(pixels.round().astype(np.uint8))
    canvas = ImageDraw.Draw(drawn)
    height, width = (int(side) for side in size)
    scale = np.array([drawn.width / width, drawn.height / height] * 2)
    for box, label in zip(boxes * scale, labels, strict=True):
        left, top, right, bottom = (float(value) for value in box)
        corners = (left, top, max(right - 1, left), max(bottom - 1, top))
        canvas.rectangle((corners[0] - 1, corners[1] - 1, corners[2] + 1, corners[3] + 1), outline="white")
        canvas.rectangle(corners, outline=class_colour(int(label)), width=2)
    for box, name in zip(boxes * scale, names, strict=False):
        canvas.text((float(box[0]) + 3, float(box[1]) + 2), name, fill="white", stroke_width=1, stroke_fill="black")
    return drawn


def _count_labels(labels: np.ndarray, names: Sequence[str]) -> str:
    classes, counts = np.unique(labels, return_counts=True)
    counted = [f"{count} × {class_name(int(each), names)}" for each, count in zip(classes, counts, strict=True)]
    return ", ".join(counted) or "nothing"


BOX_EXAMPLES = BoxExamples()
