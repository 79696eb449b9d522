"""What somebody might bring along: one of each, at the top of a module, where worker processes find it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holdfast.attacks import AttackResult
from holdfast.cells import condition_cell, set_cell
from holdfast.data import OfficialSet
from holdfast.data.image_folder import FolderSource
from holdfast.evaluation.plan import Cell
from holdfast.metrics import ScoreDefinition, column


@dataclass(frozen=True)
class Tint:
    """Add light to the channel after the right one."""

    eps: float

    def __call__(self, model, images, labels, *, seed):
        tinted = images.clone()
        for image, label in zip(tinted, labels, strict=True):
            image[(int(label) + 1) % 3] += self.eps
        tinted = tinted.clamp(0, 1)
        predictions = model(tinted).argmax(1)
        return AttackResult(tinted, predictions, predictions != labels)


def sure_columns(cell):
    return {"sure": (cell.confidences > 0.9).astype(np.float64)} if cell.spec.family == "clean" else {}


def sure_formulas(cells):
    text = "images that the model is more than 90 % sure of"
    return [
        ScoreDefinition(
            "sure",
            "sure",
            "%",
            "high",
            text,
            lambda means, name=cell.name: 100 * means[column(name, "sure")],
            headline=True,
        )
        for cell in cells
        if cell.family == "clean"
    ]


def look_at_postcards(name: str, root: Path) -> OfficialSet:
    return OfficialSet(name, root, name, "cifar", (set_cell(name),), lambda cell: FolderSource(root))


@dataclass(frozen=True)
class Negative:
    """A kind of cell of its own: every picture as its negative."""

    repeated: bool = False

    def pieces(self, cell, rows, cache):
        samples = cache.pictures(cell, rows, form="image", prepare=cache.steps.to_protocol)
        yield samples._replace(images=[cache.steps.to_model(255 - image, corrupted=False) for image in samples.images])


def negative_cells(name, source, steps, extra):
    yield Cell(condition_cell("negative"), Negative(), source)
