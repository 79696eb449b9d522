"""Terms: what an objective adds to the task's own loss, each in a file of its own.

A step: ``prepare`` (what does the model see?), one forward pass of all that is to be seen, ``loss`` (what does it
cost?), backward, and ``update`` (what else moves?).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from holdfast.attacks.criteria import Criterion
from holdfast.attention import AttentionHandle, Seen
from holdfast.errors import HoldfastError
from holdfast.io.validation import checked_options
from holdfast.methods.objective import Loss, TaskLoss

Views = tuple[Tensor, ...]


class Term(Protocol):
    """One part of a robust objective. Whoever inherits from it need only write what is different.

    Attributes:
        watches: whether it reads the features or the attention of the blocks.
    """

    watches: ClassVar[bool] = False

    @property
    def clean_weight(self) -> float:
        """What the task's own loss of the clean images is multiplied by while this term plays."""
        return 1.0

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """What it owns and moves itself, by name; loops save, restore and share it (see ``Player``)."""
        return {}

    @property
    def optimizers(self) -> Mapping[str, Optimizer]:
        """What it moves them with, by the same names."""
        return {}

    def prepare(self, images: Tensor, forward: "ForwardPass") -> Views:
        """What the model is shown: the images, changed or not, and in front of them any further views of the same."""
        return (images,)

    def loss(self, forward: "ForwardPass") -> Loss | None:
        """What the term adds to the total, weighted, and its figures for the log; None for nothing."""
        return None

    def update(self) -> Mapping[str, Tensor]:
        """Move what the term owns, once per step and after backward, clear its gradients, and return figures."""
        return {}


@dataclass(frozen=True)
class ImageSpace:
    """What images and task are like: the images' normalisation, (C, 1, 1), the task's loss and its goal for attacks."""

    mean: Tensor
    std: Tensor
    task_loss: TaskLoss
    goal: Criterion

    @property
    def range(self) -> dict[str, Tensor]:
        """The values of 0 and 1 in the images' space."""
        return {"low": -self.mean / self.std, "high": (1 - self.mean) / self.std}


@dataclass
class ForwardPass:
    """A step's forward pass as its terms see it; what follows ``terms`` is there once the model has been called.

    Attributes:
        model: as the loop has wrapped it.
        targets: of the images.
        setting: see Setting.
        terms: all that play, in their order.
        images: the clean ones, as the model saw them.
        outputs: the model's answers to the clean ones.
        features: the outputs of all blocks, for all views (``pair`` takes them apart).
        attention: the blocks' attention for the clean images.
    """

    model: nn.Module
    targets: Any
    setting: ImageSpace
    terms: Sequence[Term] = ()
    images: Tensor = field(default_factory=lambda: torch.empty(0))
    outputs: Any = None
    features: list[Tensor] = field(default_factory=list)
    attention: list[AttentionHandle] = field(default_factory=list)
    _joint: Any = None
    _count: int = 1
    _places: dict[int, int] = field(default_factory=dict)
    _kept: dict[int, Any] = field(default_factory=dict)

    def show(self, images: Tensor) -> Tensor:
        """The joint batch: the views that terms add, and last the clean images."""
        views, self._places = _views(images, self.terms, self)
        self.images, self._count = views[-1], len(views)
        return _stack_views(views)

    def show_after(self, term: Term, images: Tensor) -> Tensor:
        """The joint batch that the terms after this one make of other images."""
        place = next(i for i, other in enumerate(self.terms) if other is term)
        return _stack_views(_views(images, self.terms[place + 1 :], self)[0])

    def look(self, outputs: Any, seen: Seen) -> None:
        """Note what the model answered, and what was seen in it."""
        self._joint = outputs
        clean_alone = self._count == 1 or isinstance(outputs, Mapping)  # a detector's losses are of the clean images
        self.outputs = outputs if clean_alone else outputs.chunk(self._count)[-1]
        self.features = seen.features
        self.attention = [_last(handle, self._count) for handle in seen.attention]

    def clean(self, joint: Tensor) -> Tensor:
        """The rows of the joint batch that belong to the clean images."""
        return joint if self._count == 1 else joint.chunk(self._count)[-1]

    def outputs_of(self, term: Term) -> Any:
        """The model's answers to the first view that a term added."""
        if isinstance(self._joint, Mapping):
            raise HoldfastError(
                f"{type(term).__name__} needs the answers to changed images, and a detector in training gives losses "
                "alone (AFAT: selection must be adversarial or random)"
            )
        return self.pair(term, self._joint)[0]

    def all_outputs_of(self, term: Term, count: int) -> tuple[Any, ...]:
        """The model's answers to the first views, so many, that a term added."""
        self.outputs_of(term)  # refuses what has no answers
        place = self._places[id(term)]
        return tuple(self._joint.chunk(self._count)[place : place + count])

    def pair(self, term: Term, joint: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of the joint batch that belong to the first view that a term added, and to the clean images."""
        if id(term) not in self._places:
            raise HoldfastError(f"{type(term).__name__} must add a view in prepare before it can look at one")
        views = joint.chunk(self._count)
        return views[self._places[id(term)]], views[-1]

    def keep(self, term: Term, value: Any) -> None:
        """Put something by, from ``prepare`` to ``loss``."""
        self._kept[id(term)] = value

    def kept(self, term: Term) -> Any:
        """What the term has put by."""
        return self._kept.get(id(term))


def _views(images: Tensor, terms: Sequence[Term], forward: ForwardPass) -> tuple[list[Tensor], dict[int, int]]:
    """All views with the clean images last, and where each term's first one stands."""
    views: list[Tensor] = []
    places = {}
    for term in terms:
        *added, images = term.prepare(images, forward)
        if added:
            places[id(term)] = len(views)
        views += added
    return [*views, images], places


def _stack_views(views: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(views)) if len(views) > 1 else views[0]


def _last(handle: AttentionHandle, count: int) -> AttentionHandle:
    """The attention of the clean images of a joint batch of so many views."""
    if count == 1:
        return handle
    start = len(handle.q) - len(handle.q) // count
    bias = handle.bias[start:] if handle.bias is not None and len(handle.bias) == len(handle.q) else handle.bias
    return replace(handle, q=handle.q[start:], k=handle.k[start:], bias=bias)


@dataclass(frozen=True)
class Context:
    """What only the loop knows when a recipe's terms are built: the model, and the images that it will see."""

    model: nn.Module
    size: tuple[int, int] | None  # height and width; None where images differ
    mean: Sequence[float]
    std: Sequence[float]
    classes: Sequence[str] = ()  # the names of the model's classes, if anybody knows them


def from_options(kind: type[Any], name: str, options: Any, **known: Any) -> Any:
    """A term's settings from what a recipe says under its name."""
    given = checked_options(options, kind, whose=repr(name), withheld=[*known])
    try:
        return kind(**known, **given)
    except TypeError as error:  # such as one that has no default
        raise HoldfastError(f"options of {name!r} cannot be understood: {error}") from error
