"""Loss terms that an objective adds to the task's loss, each in its own file.

A training step calls ``prepare`` (the views of the images), runs one forward pass of all views, calls ``loss``, runs
backward, and calls ``update`` (the modules that terms own).
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
    """One term of a robust objective. Subclasses override only what differs from these defaults.

    Attributes:
        watches: whether it reads the features or the attention of the blocks.
    """

    watches: ClassVar[bool] = False

    @property
    def clean_weight(self) -> float:
        """Factor of the task's loss on clean images while this term is active."""
        return 1.0

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """Modules that the term owns and updates, by name; loops save and restore them (see ``OwnsModules``)."""
        return {}

    @property
    def optimizers(self) -> Mapping[str, Optimizer]:
        """Their optimizers, by the same names."""
        return {}

    def prepare(self, images: Tensor, forward: "ForwardPass") -> Views:
        """Views for the forward pass: any additional views first, and last the images, changed or not."""
        return (images,)

    def loss(self, forward: "ForwardPass") -> Loss | None:
        """The weighted loss of the term and its values for the log; None for no loss."""
        return None

    def update(self) -> Mapping[str, Tensor]:
        """Update the term's modules once per step, after backward, clear their gradients, and return values to log."""
        return {}


@dataclass(frozen=True)
class ImageSpace:
    """Normalisation of the images, (C, 1, 1), the task's loss, and its criterion for attacks."""

    mean: Tensor
    std: Tensor
    task_loss: TaskLoss
    goal: Criterion

    @property
    def range(self) -> dict[str, Tensor]:
        """The normalised values of 0 and 1."""
        return {"low": -self.mean / self.std, "high": (1 - self.mean) / self.std}


@dataclass
class ForwardPass:
    """A step's forward pass as its terms see it; attributes after ``terms`` are set once the model has been called.

    Attributes:
        model: the model as the loop has wrapped it.
        targets: targets of the images.
        setting: see ``ImageSpace``.
        terms: all terms, in order.
        images: the clean images, as the model saw them.
        outputs: the model's outputs for the clean images.
        features: the outputs of all blocks, for all views (``pair`` separates them).
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
        """The joint batch: the views that terms add, then the clean images."""
        views, self._places = _views(images, self.terms, self)
        self.images, self._count = views[-1], len(views)
        return _stack_views(views)

    def show_after(self, term: Term, images: Tensor) -> Tensor:
        """The joint batch that the terms after this one build from other images."""
        place = next(i for i, other in enumerate(self.terms) if other is term)
        return _stack_views(_views(images, self.terms[place + 1 :], self)[0])

    def look(self, outputs: Any, seen: Seen) -> None:
        """Record the model's outputs and the features and attention of its blocks."""
        self._joint = outputs
        clean_alone = self._count == 1 or isinstance(
            outputs, Mapping
        )  # a detector's losses are those of the clean images
        self.outputs = outputs if clean_alone else outputs.chunk(self._count)[-1]
        self.features = seen.features
        self.attention = [_last(handle, self._count) for handle in seen.attention]

    def clean(self, joint: Tensor) -> Tensor:
        """The rows of the joint batch that belong to the clean images."""
        return joint if self._count == 1 else joint.chunk(self._count)[-1]

    def outputs_of(self, term: Term) -> Any:
        """The model's outputs for the first view that a term added."""
        if isinstance(self._joint, Mapping):
            raise HoldfastError(
                f"{type(term).__name__} needs predictions for changed images, but a detector in training returns only "
                "losses (for AFAT, set selection to adversarial or random)"
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
            raise HoldfastError(f"{type(term).__name__} must add a view in prepare before it calls pair or outputs_of")
        views = joint.chunk(self._count)
        return views[self._places[id(term)]], views[-1]

    def keep(self, term: Term, value: Any) -> None:
        """Store a value in ``prepare`` for ``loss``."""
        self._kept[id(term)] = value

    def kept(self, term: Term) -> Any:
        """The value that the term stored with ``keep``."""
        return self._kept.get(id(term))


def _views(images: Tensor, terms: Sequence[Term], forward: ForwardPass) -> tuple[list[Tensor], dict[int, int]]:
    """All views with the clean images last, and the position of each term's first view."""
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
    """The attention of the clean images, the last of ``count`` views in a joint batch."""
    if count == 1:
        return handle
    start = len(handle.q) - len(handle.q) // count
    bias = handle.bias[start:] if handle.bias is not None and len(handle.bias) == len(handle.q) else handle.bias
    return replace(handle, q=handle.q[start:], k=handle.k[start:], bias=bias)


@dataclass(frozen=True)
class Context:
    """Model, image size and normalisation from the loop, for building a recipe's terms."""

    model: nn.Module
    size: tuple[int, int] | None  # height and width; None if images differ
    mean: Sequence[float]
    std: Sequence[float]
    classes: Sequence[str] = ()  # the names of the model's classes, if known


def from_options(kind: type[Any], name: str, options: Any, **known: Any) -> Any:
    """A term's settings from the recipe's option of its name."""
    given = checked_options(options, kind, whose=repr(name), withheld=[*known])
    try:
        return kind(**known, **given)
    except TypeError as error:  # such as one that has no default
        raise HoldfastError(f"options of {name!r} cannot be understood: {error}") from error
