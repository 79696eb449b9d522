"""Example images of a task: stored fields, hardness of an image, and drawing of ground truth and prediction.

The ``drawing`` of a task, which ``holdfast evaluate --keep-examples`` uses. Reports use it without torch.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from PIL import Image

from holdfast.errors import HoldfastError
from holdfast.records.records import CellRecord

Kept = Mapping[str, np.ndarray]  # ground truth and prediction of one image
LOSSLESS = 64  # longest side in pixels up to which a thumbnail is a PNG


@dataclass(frozen=True)
class ExampleView:
    """Ground truth or prediction of an example.

    Attributes:
        words: caption.
        right: score of the image, from 0 to 1.
        picture: the image with the label map or boxes drawn over it, if any.
        sure: confidence of the model, if known; a confident error is a harder example.
    """

    words: str
    right: float = 1.0
    picture: Image.Image | None = None
    sure: float = 1.0


class Examples(Protocol):
    """Stores and draws the examples of a task.

    Attributes:
        side: longest side of a thumbnail, in pixels.
        in_records: whether records hold the predictions, so that only the picture must be stored.
        note: what a report adds to the caption of the examples.
    """

    side: int
    in_records: bool
    note: str = ""

    def hardness(self, cell: CellRecord) -> np.ndarray:
        """Hardness of every image, float (N,): 0 for a correct prediction."""
        ...

    def recorded_answer(self, cell: CellRecord, row: int) -> Kept | None:
        """Ground truth and prediction of one image from its record; None if records do not hold them."""
        ...

    def predicted_answer(self, answer: Any, target: Any, *, size: tuple[int, int], cell: str) -> Kept:
        """Ground truth and prediction at the thumbnail's size (height, width), if records do not hold them."""
        ...

    def truth(self, picture: Image.Image, kept: Kept, names: Sequence[str]) -> ExampleView:
        """Draw the ground truth of an example."""
        ...

    def answer(self, picture: Image.Image, kept: Kept, names: Sequence[str]) -> ExampleView:
        """Draw the prediction of an example."""
        ...


def thumbnail(pixels: np.ndarray, *, side: int) -> Image.Image:
    """Downscale an image (H, W, 3) to at most ``side`` pixels; smaller images keep their size."""
    picture = Image.fromarray(pixels)
    picture.thumbnail((side, side), Image.Resampling.BICUBIC)
    return picture


def encode_picture(picture: Image.Image) -> bytes:
    """Encode a picture as PNG if it is tiny, so that every pixel counts, else as JPEG."""
    buffer = io.BytesIO()
    options: dict[str, Any] = {"format": "PNG", "optimize": True}
    if max(picture.size) > LOSSLESS:
        options = {"format": "JPEG", "quality": 88}
    picture.convert("RGB").save(buffer, **options)
    return buffer.getvalue()


def class_name(number: int, names: Sequence[str]) -> str:
    """Name of a class, or its index if names are unknown."""
    return str(names[number]) if 0 <= number < len(names) else str(number)


class ClassExamples(Examples):
    """Examples of classification: records hold everything except the picture."""

    side = 112
    in_records = True

    def hardness(self, cell: CellRecord) -> np.ndarray:
        """Confidence of a wrong prediction; 0 for a correct one."""
        return np.where(cell.predictions == cell.targets, 0.0, cell.confidences)

    def recorded_answer(self, cell: CellRecord, row: int) -> Kept:
        """Target, predicted class and confidence of one image."""
        known = (cell.targets[row], cell.predictions[row], cell.confidences[row])
        return {name: np.asarray(value) for name, value in zip(("truth", "answer", "confidence"), known, strict=True)}

    def predicted_answer(self, answer: Any, target: Any, *, size: tuple[int, int], cell: str) -> Kept:
        """Raise an error: records of classification hold the predictions."""
        raise HoldfastError("records of classification hold the predictions; use recorded_answer")

    def truth(self, picture: Image.Image, kept: Kept, names: Sequence[str]) -> ExampleView:
        """The true class as caption."""
        return ExampleView(class_name(int(kept["truth"]), names))

    def answer(self, picture: Image.Image, kept: Kept, names: Sequence[str]) -> ExampleView:
        """The predicted class and its confidence as caption."""
        sure = float(kept["confidence"])
        words = f"{class_name(int(kept['answer']), names)}, {100 * sure:.0f} %"
        return ExampleView(words, float(kept["answer"] == kept["truth"]), sure=sure)


CLASS_EXAMPLES = ClassExamples()
