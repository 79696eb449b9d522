"""Examples of classification: the picture as it is, the classes in words."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from holdfast.errors import HoldfastError
from holdfast.records.records import CellRecord
from holdfast.tasks.examples import Kept, Shown, class_name


class ClassExamples:
    """One class per image: records hold everything but the picture."""

    side = 112
    in_records = True

    def hardness(self, cell: CellRecord) -> np.ndarray:
        """The confidence in a wrong class; 0 where it is right."""
        return np.where(cell.predictions == cell.targets, 0.0, cell.confidences)

    def recorded(self, cell: CellRecord, row: int) -> Kept:
        """Target, predicted class and its probability."""
        known = (cell.targets[row], cell.predictions[row], cell.confidences[row])
        return {name: np.asarray(value) for name, value in zip(("truth", "answer", "confidence"), known, strict=True)}

    def looked_up(self, answer: Any, target: Any, *, size: tuple[int, int], cell: str) -> Kept:
        """Never asked for."""
        raise HoldfastError("records of classification hold the answers")

    def truth(self, picture: Image.Image, kept: Kept, names: Sequence[str]) -> Shown:
        """The class."""
        return Shown(class_name(int(kept["truth"]), names))

    def answer(self, picture: Image.Image, kept: Kept, names: Sequence[str]) -> Shown:
        """The class and how sure the model is."""
        sure = float(kept["confidence"])
        words = f"{class_name(int(kept['answer']), names)}, {100 * sure:.0f} %"
        return Shown(words, float(kept["answer"] == kept["truth"]), sure=sure)
