"""How a task shows single images: what is kept of an example, how bad the answer is, and how both are drawn.

A task may have an attribute ``examples`` with such an object; ``holdfast evaluate --keep-examples`` asks for it.
Reports use it without torch.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from PIL import Image

from holdfast.errors import HoldfastError
from holdfast.records.records import CellRecord

Kept = Mapping[str, np.ndarray]  # truth and answer of one image
LOSSLESS = 64  # pixels of a side up to which a thumbnail is a PNG
# Okabe and Ito's colours without black, then lighter and darker ones: neighbours differ
PALETTE = np.array(
    [
        (0, 114, 178), (213, 94, 0), (0, 158, 115), (240, 228, 66), (204, 121, 167), (86, 180, 233), (230, 159, 0),
        (136, 34, 85), (17, 119, 51), (51, 34, 136), (170, 68, 153), (153, 153, 51), (102, 17, 0), (136, 204, 238),
    ],
    dtype=np.uint8,
)  # fmt: skip


@dataclass(frozen=True)
class ExampleView:
    """One side of an example.

    Attributes:
        words: what people read.
        right: from 0 to 1.
        picture: drawn over the image, where there is something to draw.
        sure: how sure the model was, where it says so; a wrong answer is the harder.
    """

    words: str
    right: float = 1.0
    picture: Image.Image | None = None
    sure: float = 1.0


class Examples(Protocol):
    """What a task does with examples.

    Attributes:
        side: the longest side of a thumbnail, in pixels.
        in_records: whether records hold the answers, so that a picture is all that must be stored.
    """

    side: int
    in_records: bool

    def hardness(self, cell: CellRecord) -> np.ndarray:
        """How badly every image went, float (N,): 0 for what is right."""
        ...

    def recorded(self, cell: CellRecord, row: int) -> Kept | None:
        """Truth and answer of one image, as far as records tell; None where they do not."""
        ...

    def looked_up(self, answer: Any, target: Any, *, size: tuple[int, int], cell: str) -> Kept:
        """Truth and answer in the pixels of a thumbnail (height, width), where records do not tell."""
        ...

    def truth(self, picture: Image.Image, kept: Kept, names: Sequence[str]) -> ExampleView:
        """What is true of it."""
        ...

    def answer(self, picture: Image.Image, kept: Kept, names: Sequence[str]) -> ExampleView:
        """What the model said."""
        ...


def thumbnail(pixels: np.ndarray, *, side: int) -> Image.Image:
    """A small copy of an image (H, W, 3); one that is small already stays as it is."""
    picture = Image.fromarray(pixels)
    picture.thumbnail((side, side), Image.Resampling.BICUBIC)
    return picture


def encode_picture(picture: Image.Image) -> bytes:
    """PNG where every pixel counts, else JPEG."""
    buffer = io.BytesIO()
    options: dict[str, Any] = {"format": "PNG", "optimize": True}
    if max(picture.size) > LOSSLESS:
        options = {"format": "JPEG", "quality": 88}
    picture.convert("RGB").save(buffer, **options)
    return buffer.getvalue()


def class_name(number: int, names: Sequence[str]) -> str:
    """The class's name, or its number where names are not known."""
    return str(names[number]) if 0 <= number < len(names) else str(number)


def class_colour(number: int) -> tuple[int, int, int]:
    """The colour of a class in overlays and boxes."""
    red, green, blue = PALETTE[number % len(PALETTE)].tolist()
    return red, green, blue


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

    def truth(self, picture: Image.Image, kept: Kept, names: Sequence[str]) -> ExampleView:
        """The class."""
        return ExampleView(class_name(int(kept["truth"]), names))

    def answer(self, picture: Image.Image, kept: Kept, names: Sequence[str]) -> ExampleView:
        """The class and how sure the model is."""
        sure = float(kept["confidence"])
        words = f"{class_name(int(kept['answer']), names)}, {100 * sure:.0f} %"
        return ExampleView(words, float(kept["answer"] == kept["truth"]), sure=sure)
