"""Examples of detection: boxes over the picture, what is there and what was found."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from holdfast.errors import HoldfastError
from holdfast.metrics.average_precision import matched
from holdfast.records.records import CellRecord
from holdfast.tasks.examples import Kept, Shown, class_colour, class_name

SCORE = 0.5  # what is drawn, and counted
FIELDS = ("size", "boxes", "labels", "scores", "true_boxes", "true_labels", "true_crowds")


class BoxExamples:
    """Objects with boxes: records hold them all."""

    side = 224
    in_records = True

    def hardness(self, cell: CellRecord) -> np.ndarray:
        """1 − F1 of every image, score and IoU from ½."""
        return 1.0 - cell.right

    def recorded(self, cell: CellRecord, row: int) -> Kept:
        """Boxes, classes and scores, in the image's own pixels."""
        return {name: np.asarray(cell.fields[name][row]) for name in FIELDS}

    def looked_up(self, answer: Any, target: Any, *, size: tuple[int, int], cell: str) -> Kept:
        """Never asked for."""
        raise HoldfastError("records of detection hold the answers")

    def truth(self, picture: Image.Image, kept: Kept, names: Sequence[str]) -> Shown:
        """Every object."""
        labels = kept["true_labels"]
        return Shown(_counted(labels, names), picture=_boxed(picture, kept, kept["true_boxes"], labels))

    def answer(self, picture: Image.Image, kept: Kept, names: Sequence[str]) -> Shown:
        """What was found with a score of ½ or more."""
        sure = kept["scores"] >= SCORE
        hit, seen, there = matched({name: (values,) for name, values in kept.items()}, 0)
        right = 2 * hit / (seen + there) if seen + there else 1.0
        words = f"{hit} of {there} found" + (f", {seen - hit} wrongly" if seen > hit else "")
        return Shown(words, float(right), _boxed(picture, kept, kept["boxes"][sure], kept["labels"][sure]))


def _boxed(picture: Image.Image, kept: Kept, boxes: np.ndarray, labels: np.ndarray) -> Image.Image:
    drawn = picture.convert("RGB").copy()
    canvas = ImageDraw.Draw(drawn)
    height, width = (int(side) for side in kept["size"])
    scale = np.array([drawn.width / width, drawn.height / height] * 2)
    for box, label in zip(boxes * scale, labels, strict=True):
        left, top, right, bottom = (float(value) for value in box)
        corners = (left, top, max(right - 1, left), max(bottom - 1, top))
        canvas.rectangle((corners[0] - 1, corners[1] - 1, corners[2] + 1, corners[3] + 1), outline="white")
        canvas.rectangle(corners, outline=class_colour(int(label)), width=2)
    return drawn


def _counted(labels: np.ndarray, names: Sequence[str]) -> str:
    classes, counts = np.unique(labels, return_counts=True)
    told = [f"{count} × {class_name(int(each), names)}" for each, count in zip(classes, counts, strict=True)]
    return ", ".join(told) or "nothing"
