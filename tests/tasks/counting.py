"""A task in one file: counting bright squares. It needs the parts of a task and nothing else of Holdfast."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from PIL import Image

from holdfast import create_model
from holdfast.evaluation.preprocessing import preprocessing
from holdfast.metrics.scoring.base import CellScore, column, shared_formulas
from holdfast.metrics.scoring.interface import Scoring
from holdfast.records.shard_files import field_name
from holdfast.tasks import Evaluation, Task, Training

SIDE, MOST = 32, 4
HIT = CellScore("hits", "share of counts within a half", "mean hits", lambda means, cell: means[column(cell, "right")])


@dataclass(frozen=True)
class Squares:
    """Images with 0 to 4 bright squares; the target of an image is their number."""

    count: int = 24
    task: str = "counting"
    name: str = "squares"
    classes: tuple[str, ...] = ("squares",)

    def __len__(self):
        return self.count

    def id(self, index):
        return f"squares/{index:03d}"

    def number(self, index):
        return index % (MOST + 1)

    def image(self, index):
        pixels = np.zeros((SIDE, SIDE, 3), np.uint8)
        for square in range(self.number(index)):
            row, column_ = divmod((square * 5 + index) % 16, 4)
            pixels[8 * row : 8 * row + 8, 8 * column_ : 8 * column_ + 8] = 255
        return Image.fromarray(pixels)


class CountBright(torch.nn.Module):
    """Counts by the mean level."""

    def forward(self, images):
        return 16 * images.mean(dim=(1, 2, 3))[:, None]


class Goal:
    """An attack raises the squared error; a count off by more than a half is wrong."""

    losses: ClassVar = {"cross_entropy": lambda output, targets: (output[:, 0] - targets).square()}

    def check(self, output, targets):
        assert len(output) == len(targets)

    def predicted(self, output):
        return output[:, 0]

    def right(self, output, targets):
        return (output[:, 0] - targets).abs() < 0.5


class CountingScoring(Scoring):
    fields: ClassVar = {"counts": np.float32}
    headline = ("clean", "mean_corruption_hits", "retention")
    per_image = "Percent of the counts within a half"

    def right(self, cell):
        targets = cell.targets.reshape(-1, *(1,) * (cell.counts.ndim - 1))
        return (np.abs(cell.counts - targets) < 0.5).reshape(len(cell), -1).mean(axis=1)

    def formulas(self, cells, *, columns, header, reference):
        return shared_formulas(cells, measure=HIT, reference=reference)

    def rows(self, cell):
        return {"id": cell.ids, "count": cell.counts, "target": cell.targets}


class CountingEvaluation(Evaluation):
    goal = Goal()

    def truth(self, source):
        return np.array([source.number(index) for index in range(len(source))], dtype=np.float64)

    def target(self, source, index):
        return float(source.number(index))

    def steps(self, source, wanted, *, preset, stored_jpeg):
        return preprocessing(preset or "cifar", wanted, stored_jpeg=stored_jpeg)

    def keep(self, answers, targets, *, cell, repeats=None):
        shape = (len(targets), repeats) if repeats else (len(targets),)
        counts = {view: answer[:, 0].float().cpu().numpy() for view, answer in answers.items()}
        return {field_name(view, "counts"): values.reshape(shape) for view, values in counts.items()}


class CountingTraining(Training):
    def build(self, recipe, *, classes, size):
        return create_model(recipe.name, num_classes=classes, **recipe.kwargs)

    def loss(self, output, targets):
        return (output[:, 0] - targets).square().mean()

    def tally(self, output, targets):
        if output is None:
            return torch.zeros(2)
        return torch.stack([Goal().right(output, targets).sum(), torch.tensor(len(targets))]).float()

    def validation_scores(self, counts):
        return {"hits": 100 * float(counts[0] / counts[1])}


COUNTING = Task("counting", scoring=CountingScoring(), evaluation=CountingEvaluation(), training=CountingTraining())
