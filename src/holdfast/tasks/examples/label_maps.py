"""Example images of segmentation: label maps over the picture, and the wrong pixels below a prediction."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from holdfast.metrics.iou import IGNORED
from holdfast.plotting.annotate import errors_over, label_map_over
from holdfast.records.records import CellRecord
from holdfast.tasks.examples.base import Examples, ExampleView, Kept, class_name


class MapExamples(Examples):
    """Examples of segmentation: records hold counts only, so label maps are stored at the thumbnail's size."""

    side = 192
    in_records = False
    note = ", wrong pixels below"

    def hardness(self, cell: CellRecord) -> np.ndarray:
        """Fraction of labelled pixels that are wrong."""
        return 1.0 - cell.right

    def recorded_answer(self, cell: CellRecord, row: int) -> None:
        """None, because records hold no label maps."""
        return

    def predicted_answer(self, answer: Any, target: Any, *, size: tuple[int, int], cell: str) -> Kept:
        """Both label maps as PNG files of the thumbnail's size."""
        from holdfast.models.sliding_window import predicted_map

        true = np.asarray(target)
        return {
            "truth": _pack_label_map(true, size),
            "answer": _pack_label_map(np.asarray(predicted_map(answer, true.shape, cell=cell)), size),
        }

    def truth(self, picture: Image.Image, kept: Kept, names: Sequence[str]) -> ExampleView:
        """Draw the ground-truth label map over the picture."""
        true = _unpack_label_map(kept["truth"])
        return ExampleView(_present(true, names), picture=label_map_over(picture, true))

    def answer(self, picture: Image.Image, kept: Kept, names: Sequence[str]) -> ExampleView:
        """Draw the predicted label map and its errors; the caption names the most frequent confusion."""
        true, seen = _unpack_label_map(kept["truth"]), _unpack_label_map(kept["answer"])
        labelled = true != IGNORED
        wrong = labelled & (true != seen)
        right = 1 - wrong.sum() / max(int(labelled.sum()), 1)
        words = f"{100 * right:.0f} % of the pixels right{_most_confused(true[wrong], seen[wrong], names)}"
        return ExampleView(
            words, float(right), _stack_pictures(label_map_over(picture, seen), errors_over(picture, wrong))
        )


def _pack_label_map(numbers: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    small = Image.fromarray(numbers.astype(np.uint8)).resize(size[::-1], Image.Resampling.NEAREST)
    buffer = io.BytesIO()
    small.save(buffer, format="PNG", optimize=True)
    return np.frombuffer(buffer.getvalue(), np.uint8)


def _unpack_label_map(values: np.ndarray) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(np.asarray(values).tobytes())).convert("L"))


def _stack_pictures(upper: Image.Image, lower: Image.Image, *, gap: int = 3) -> Image.Image:
    both = Image.new("RGB", (upper.width, upper.height + gap + lower.height), "white")
    both.paste(upper, (0, 0))
    both.paste(lower, (0, upper.height + gap))
    return both


def _present(numbers: np.ndarray, names: Sequence[str]) -> str:
    classes, counts = np.unique(numbers[numbers != IGNORED], return_counts=True)
    return ", ".join(class_name(int(each), names) for each in classes[np.argsort(-counts)][:4])


def _most_confused(true: np.ndarray, seen: np.ndarray, names: Sequence[str]) -> str:
    """The most frequent confusion among the wrong pixels, in words."""
    if not len(true):
        return ""
    pairs, counts = np.unique(np.stack([true, seen], axis=1), axis=0, return_counts=True)
    first, second = (class_name(int(each), names) for each in pairs[counts.argmax()])
    return f"; most often {second} for {first}"


MAP_EXAMPLES = MapExamples()
