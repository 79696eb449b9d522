"""``Task``: the interface between a model's output and evaluation, training, records and reports.

Methods are in the order in which an image passes them; those of the last part must be importable without torch, because
reports read records alone. Optional attributes: ``adapt_model(model, source)`` wraps the model for these data
(detectors that output COCO's category ids), ``examples`` stores and draws example images, see
:mod:`holdfast.tasks.examples.base`, ``running`` is the score of the progress line, see :class:`RunningScore`, and
``cell_scores(header)`` are the scores of a cell, the first for heat maps and curves. A task that scores whole sets has
``set_figures(cells)``, further values for studies, and, if a score is no function of means over images,
``replicates(cell, groups)``, see :mod:`holdfast.metrics.replicates`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from holdfast.records.cells import CellSpec
from holdfast.records.records import CellRecord
from holdfast.records.shard_files import Field

if TYPE_CHECKING:
    from torch import Tensor, nn

    from holdfast.attacks.criteria import Criterion
    from holdfast.metrics.scoring.base import Key, Reference, ScoreDefinition
    from holdfast.records.records import CellRecord


Answers = Mapping[str, Any]  # the model's outputs by view


class Task(Protocol):
    """Targets, outputs, loss, records and scores of a task.

    Attributes:
        name: name of the task, as in records and in a source's attribute ``task``.
        batched: whether images go through the model in batches. Dense tasks use one image at a time, because a batched
            pass differs in the sixth digit; image sizes may then vary.
        fields: names and types of the recorded fields of an image.
        headline: names of the scores in a report's first table.
        per_image: description of the mean of :meth:`right` over the images, for reports.
    """

    name: str
    batched: bool
    fields: Mapping[str, Any]
    headline: Sequence[str]
    per_image: str

    # data

    def truth(self, source: Any) -> np.ndarray:
        """Recorded form of the targets, a row per image: enough to detect whether two record sets share their data."""
        ...

    def strata(self, source: Any) -> np.ndarray:
        """Stratum of every image, an integer, by which subsets are stratified; all zero for no strata."""
        ...

    def target(self, source: Any, index: int) -> Any:
        """The target of one image."""
        ...

    def steps(self, source: Any, wanted: Any, *, preset: str | None, stored_jpeg: bool) -> Any:
        """Preprocessing of the images, see :class:`holdfast.evaluation.preprocessing.Preprocessing`."""
        ...

    # outputs of a model

    def check_model(self, answers: Answers, *, classes: int, restricted: bool, data: str) -> None:
        """Raise an error if the outputs for one grey image do not suit this task and these classes."""
        ...

    def keep(
        self, answers: Answers, targets: Sequence[Any], *, cell: Any, repeats: int | None = None
    ) -> dict[str, Field]:
        """Recorded fields of some images of a cell, keyed by ``field_name(view, field)``.

        ``repeats`` is the number of consecutive predictions per image, if any; arrays are then (n, repeats).
        """
        ...

    @property
    def goal(self) -> "Criterion":
        """Criterion of attacks: the losses that they maximise, and their success."""
        ...

    # training

    def collate(self, targets: Sequence[Any]) -> Any:
        """Collate the targets of a batch, before mixing."""
        ...

    def loss(self, output: Any, targets: Any) -> "Tensor":
        """Training loss of a batch, a scalar."""
        ...

    def tally(self, output: Any, targets: Any) -> "Tensor":
        """Validation counts of a batch, which add up over batches and processes; zeros for (None, None)."""
        ...

    def validation_scores(self, counts: "Tensor") -> dict[str, float]:
        """Validation scores in percent from the summed counts; the first selects the best checkpoint."""
        ...

    def transforms(self, recipe: Any, image: Any) -> tuple[Any, Any]:
        """Transforms (picture, target) → (tensor, target) for training and validation, by a recipe's ``augment``."""
        ...

    def mixer(self, recipe: Any, *, classes: int) -> Any:
        """Batch augmentation such as mixup: (images, targets, epoch) → (images, targets)."""
        ...

    def build(self, recipe: Any, *, classes: int, size: Any) -> "nn.Module":
        """Build the model of a recipe's section ``model``."""
        ...

    # scores from records, without torch

    def right(self, cell: "CellRecord") -> np.ndarray:
        """Per-image score, float64 (N,), from 0 to 1."""
        ...

    def rows(self, cell: "CellRecord") -> dict[str, np.ndarray]:
        """Columns of a table with a row per image, or per frame; first ``id``."""
        ...

    def remark(self, cell: "CellRecord") -> str:
        """Note that accompanies an attack's score; mostly empty."""
        ...

    def columns(self, cell: "CellRecord") -> dict[str, np.ndarray]:
        """Per-image quantities that scores average, by name, each (N,)."""
        ...

    def formulas(
        self,
        cells: Sequence[CellSpec],
        *,
        columns: "Collection[Key]",
        header: Mapping[str, Any],
        reference: "Reference | None",
    ) -> "list[ScoreDefinition]":
        """Score definitions for these cells, in the order of tables."""
        ...


@dataclass(frozen=True)
class RunningScore:
    """A score that follows from sums over images.

    Attributes:
        word: its name behind ``clean`` and ``corrupted``; empty for accuracy.
        sums: what a cell's images add up to.
        score: from 0 to 1, of such sums.
    """

    word: str
    sums: Callable[[CellRecord], np.ndarray]
    score: Callable[[np.ndarray], Any]
