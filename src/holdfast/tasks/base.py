"""The interface of a task: all that evaluation, training, records and reports ask about a model's output.

The methods stand in the order in which an image passes them; those of the last part need no torch and must be
importable without it, because reports read records alone. A task may also have ``adapted(model, source)``: the model as
these data must ask it (detectors that answer with COCO's category ids), ``examples``: how single images are kept and
drawn, see :mod:`holdfast.tasks.examples.base`, and ``running``: the score that the progress line shows, see
:class:`RunningScore`; none is shown without.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from holdfast.records.cells import CellSpec
from holdfast.records.records import CellRecord
from holdfast.records.shard_files import Field

if TYPE_CHECKING:
    from torch import Tensor, nn

    from holdfast.attacks.criteria import Criterion
    from holdfast.metrics.scoring.base import Reference, ScoreDefinition
    from holdfast.records.records import CellRecord


Answers = Mapping[str, Any]  # what the model returned, by view


class Task(Protocol):
    """What an answer is.

    Attributes:
        name: as in records, and as a source's attribute ``task`` says it.
        together: whether images go through the model in batches. Where answers are compared pixel by pixel they do
            not, because a batched pass differs in the sixth digit; sizes may then differ from image to image.
        fields: the names and types of what a unit keeps of every image.
        headline: the scores that a report shows first.
        per_image: what the mean of :meth:`right` over the images is, in a report's words.
    """

    name: str
    together: bool
    fields: Mapping[str, Any]
    headline: Sequence[str]
    per_image: str

    # data

    def truth(self, source: Any) -> np.ndarray:
        """What a record set keeps of the targets, a row per image: enough to tell whether two sets are of one data."""
        ...

    def strata(self, source: Any) -> np.ndarray:
        """A whole number per image; a limited evaluation keeps every one in its share. All zero for no strata."""
        ...

    def target(self, source: Any, index: int) -> Any:
        """The target of one image."""
        ...

    def steps(self, source: Any, wanted: Any, *, preset: str | None, stored_jpeg: bool) -> Any:
        """Images to model input: see :class:`holdfast.evaluation.preprocessing.PreprocessingSteps`."""
        ...

    # a model's answers

    def check_model(self, answers: Answers, *, classes: int, restricted: bool, data: str) -> None:
        """Refuse a model whose answers to one grey image are not what this task wants of data with these classes."""
        ...

    def keep(
        self, answers: Answers, targets: Sequence[Any], *, cell: Any, repeats: int | None = None
    ) -> dict[str, Field]:
        """What a unit keeps of some images of a cell, ``field_name(view, field)`` by ``fields``.

        ``repeats`` says how often every image was shown in a row, where it was; arrays are then (n, repeats).
        """
        ...

    @property
    def goal(self) -> "Criterion":
        """What an attack climbs, and when it has won."""
        ...

    # training

    def collate(self, targets: Sequence[Any]) -> Any:
        """The targets of a batch as the objective gets them, before mixing."""
        ...

    def loss(self, output: Any, targets: Any) -> "Tensor":
        """What a model is trained to lower on a batch, one number."""
        ...

    def tally(self, output: Any, targets: Any) -> "Tensor":
        """What validation counts of a batch: adds up over batches and processes. Of nothing (None, None) all zeros."""
        ...

    def validation_scores(self, counts: "Tensor") -> dict[str, float]:
        """The scores of a validation from the sum of its tallies, in percent; the first decides what is best."""
        ...

    def transforms(self, recipe: Any, image: Any) -> tuple[Any, Any]:
        """(picture, target) → (tensor, target), for training and for validation, by a recipe's section ``augment``."""
        ...

    def mixer(self, recipe: Any, *, classes: int) -> Any:
        """(images, targets, epoch) → (images, targets): what is done to whole batches, such as mixup."""
        ...

    def build(self, recipe: Any, *, classes: int, size: Any) -> "nn.Module":
        """The model that a recipe's section ``model`` describes."""
        ...

    # numbers from records, without torch

    def right(self, cell: "CellRecord") -> np.ndarray:
        """How well every image went, float64 (N,), from 0 to 1."""
        ...

    def rows(self, cell: "CellRecord") -> dict[str, np.ndarray]:
        """Columns of a table with a row per image, or per frame where it is seen several times; first ``id``."""
        ...

    def remark(self, cell: "CellRecord") -> str:
        """What must be said beside an attack's number; mostly nothing."""
        ...

    def columns(self, cell: "CellRecord") -> dict[str, np.ndarray]:
        """Everything that scores average over the images, by quantity, each (N,)."""
        ...

    def formulas(
        self,
        cells: Sequence[CellSpec],
        *,
        columns: Sequence[str],
        header: Mapping[str, Any],
        reference: "Reference | None",
    ) -> "list[ScoreDefinition]":
        """Every score that these cells allow, in the order in which tables show them."""
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
