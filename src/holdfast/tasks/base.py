"""``Task``: the parts that make a task, by its name.

A task is scoring (`holdfast.metrics.scoring.interface.Scoring`, without torch), evaluation, training and drawing
(`holdfast.tasks.examples.base.Examples`). Each is a small protocol with defaults: subclass it and write what
differs. A part may be given as ``"module:name"`` and is then imported on first use, so that reports, which read records
alone, need no torch.
"""

import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from holdfast.corruptions.severities import EXTRA, STANDARD
from holdfast.errors import HoldfastError
from holdfast.metrics.scoring.interface import Scoring
from holdfast.records.shard_files import Field
from holdfast.registry import load
from holdfast.tasks.examples.base import Examples

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor, nn

    from holdfast.attacks.criteria import Criterion

Answers = Mapping[str, Any]  # the model's outputs by view


class Evaluation(Protocol):
    """Targets and preprocessing of a task, and what is recorded of a model's outputs.

    Attributes:
        needs: the data of the task in words, for error messages.
        standard_attack: attack of the suite ``standard``; empty for none.
        batched: whether images go through the model in batches. Dense tasks use one image at a time, because a batched
            pass differs in the sixth digit; image sizes may then vary.
        tensor_outputs: whether a model returns one tensor with a row per image.
        label_maps: whether it returns logits per pixel.
        lists_answers: whether ``holdfast predict`` can list predictions, see `answer`.
        draws_overlays: whether it can draw them, see `overlay`.
    """

    needs: str = "data of the task"
    standard_attack: str = ""
    batched: bool = True
    tensor_outputs: bool = True
    label_maps: bool = False
    lists_answers: bool = False
    draws_overlays: bool = False

    def truth(self, source: Any) -> np.ndarray:
        """Recorded form of the targets, a row per image: enough to detect whether two record sets share their data."""
        ...

    def target(self, source: Any, index: int) -> Any:
        """The target of one image."""
        ...

    def steps(self, source: Any, wanted: Any, *, preset: str | None, stored_jpeg: bool) -> Any:
        """Preprocessing of the images, see `holdfast.evaluation.preprocessing.Preprocessing`."""
        ...

    def keep(
        self, answers: Answers, targets: Sequence[Any], *, cell: Any, repeats: int | None = None
    ) -> dict[str, Field]:
        """Recorded fields of some images of a cell, keyed by ``field_name(view, field)``.

        ``repeats`` is the number of consecutive predictions per image, if any; arrays are then (n, repeats).
        """
        ...

    def strata(self, source: Any) -> np.ndarray:
        """Stratum of every image, an integer, by which subsets are stratified; by default one for all."""
        return np.zeros(len(source), dtype=np.int64)

    def collate(self, targets: Sequence[Any]) -> Any:
        """Targets of a batch, before mixing; by default a tensor."""
        import torch

        return torch.tensor(list(targets))

    def check_protocol(self, protocol: Any) -> None:
        """Raise an error for settings of `holdfast.EvalProtocol` that the task would ignore."""
        return

    def check_model(self, answers: Answers, *, classes: int, restricted: bool, data: str) -> None:
        """Raise an error if the outputs for one grey image do not suit this task and these classes."""
        return

    def adapt_model(self, model: "nn.Module", source: Any) -> "nn.Module":
        """Wrap a model for these data, such as a detector that outputs COCO's category ids."""
        return model

    def corruption_kinds(self, extra: bool) -> tuple[str, ...]:
        """Kinds of the suite ``corruptions``, and of ``--extra``."""
        return STANDARD + EXTRA if extra else STANDARD

    @property
    def goal(self) -> "Criterion":
        """Criterion of attacks: the losses that they maximise, and their success; by default there are none."""
        return NoCriterion("attacks need a task with a goal, which this one does not have")

    def answer(self, output: Any, *, classes: Sequence[str] | None, top: int) -> list[dict[str, Any]]:
        """The predictions for one image as plain values, for ``holdfast predict``."""
        raise HoldfastError("predict cannot list predictions of this task: its evaluation needs a method answer")

    def overlay(self, picture: "Image.Image", output: Any, *, classes: Sequence[str] | None) -> "Image.Image":
        """The predictions for one image drawn over it."""
        raise HoldfastError("overlays of this task cannot be drawn: its evaluation needs a method overlay")


class Training(Protocol):
    """Model, loss, augmentation and validation of a task."""

    def build(self, recipe: Any, *, classes: int, size: Any) -> "nn.Module":
        """Build the model of a recipe's section ``model``."""
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
        """Transforms (picture, target) → (tensor, target) for training and validation; by default no augmentation."""
        return as_tensor, as_tensor

    def mixer(self, recipe: Any, *, classes: int) -> Any:
        """Batch augmentation such as mixup: (images, targets, epoch) → (images, targets); by default none."""
        return lambda images, targets, epoch: (images, targets)

    def shown_size(self, recipe: Any, image: Any, model: "nn.Module") -> tuple[int, int] | None:
        """Height and width of the training images; None if they differ."""
        return image.size, image.size


class NoCriterion:
    """Criterion of a task without attacks: every use raises an error."""

    losses: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, error: str) -> None:
        self.error = error

    def check(self, output: Any, targets: Any) -> None:
        """Raise the error."""
        raise HoldfastError(self.error)

    def predicted(self, output: Any) -> Any:
        """The output as it is."""
        return output

    def right(self, output: Any, targets: Any) -> "Tensor":
        """Raise the error."""
        raise HoldfastError(self.error)


def as_tensor(picture: Any, target: Any) -> tuple["Tensor", Any]:
    """The picture as tensor (3, H, W) from 0 to 1, and its target."""
    import torch

    pixels = np.array(picture.convert("RGB"))
    return torch.from_numpy(pixels).permute(2, 0, 1).float() / 255, target


class Task:
    """The parts of a task.

    Args:
        name: name of the task, as in records and in a source's attribute ``task``.
        scoring: its recorded fields and scores.
        evaluation: what is asked of data and models.
        training: how models are trained; None for a task that is only evaluated.
        drawing: how example images are drawn; None for none.
        line: one-line description for ``holdfast list tasks``.
    """

    def __init__(
        self,
        name: str,
        *,
        scoring: Scoring | str,
        evaluation: Evaluation | str,
        training: Training | str | None = None,
        drawing: Examples | str | None = None,
        line: str = "",
    ) -> None:
        self.name, self.line = name, line
        self._parts = {"scoring": scoring, "evaluation": evaluation, "training": training, "drawing": drawing}

    @cached_property
    def scoring(self) -> Scoring:
        """Recorded fields and scores, without torch."""
        return self._part("scoring")

    @cached_property
    def evaluation(self) -> Evaluation:
        """Targets, preprocessing and what is kept of a model's outputs."""
        return self._part("evaluation")

    @cached_property
    def training(self) -> Training:
        """Model, loss, augmentation and validation."""
        part = self._part("training")
        if part is None:
            raise HoldfastError(f"task {self.name!r} cannot be trained: it was registered without a part for training")
        return part

    @cached_property
    def drawing(self) -> Examples | None:
        """How example images are drawn; None if they are not."""
        return self._part("drawing")

    def _part(self, name: str) -> Any:
        part = self._parts[name]
        return load(part) if isinstance(part, str) else part

    if not TYPE_CHECKING:  # a task was one object with the members of all parts

        def __getattr__(self, name: str) -> Any:
            if not name.startswith("_"):
                for part in ("scoring", "evaluation", "training"):
                    found = getattr(self._part(part), name, None)
                    if found is not None:
                        warnings.warn(f"Task.{name} is now Task.{part}.{name}", DeprecationWarning, stacklevel=2)
                        return found
            raise AttributeError(f"task {self.__dict__.get('name')!r} has no attribute {name!r}")
