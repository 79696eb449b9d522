"""The interface of objectives, ``(model, images, targets) → Loss``, and plain cross-entropy.

An objective takes the model as the loop has wrapped it, may call it any number of times, and returns the loss to
minimise. It works in any training loop:

    loss = objective(model, images, targets)
    loss.total.backward()
    optimizer.step()
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from holdfast.errors import HoldfastError, nearest
from holdfast.io.validation import checked_options
from holdfast.registry import Registry, add_row

TaskLoss = Callable[[Any, Any], Tensor]  # (model output, targets) → scalar


@dataclass(frozen=True)
class Loss:
    """The total loss, and its parts and other values for the log, detached."""

    total: Tensor
    parts: Mapping[str, Tensor] = field(default_factory=dict)


class Objective(Protocol):
    """A training objective: computes the loss of a batch."""

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Loss:
        """Images (B, 3, H, W) and soft targets (B, classes) → the loss of this batch."""
        ...


@runtime_checkable
class OwnsModules(Protocol):
    """An objective that owns modules and updates them itself, from the same backward pass as the model.

    A loop saves and restores ``modules`` and ``optimizers`` by name, averages the modules' gradients over processes,
    and calls ``update`` once per step, after the model's optimizer; ``update`` also clears those gradients. The
    objective must divide by the loss scale (fp16) itself, before it clamps gradients.
    """

    modules: Mapping[str, nn.Module]
    optimizers: Mapping[str, Optimizer]

    def update(self) -> Mapping[str, Tensor]:
        """Update the modules, clear their gradients, and return values for the log."""
        ...


class CrossEntropy:
    """The task's loss alone; for classification, cross-entropy with soft targets, mean over the batch."""

    def __init__(self, task_loss: TaskLoss = F.cross_entropy) -> None:
        self.task_loss = task_loss

    def __call__(self, model: nn.Module, images: Tensor, targets: Any) -> Loss:
        """The loss of a batch, from one forward pass."""
        loss = self.task_loss(model(images), targets)
        return Loss(loss, {"cross_entropy": loss.detach()})


OBJECTIVES: Registry[str, Callable[..., Objective]] = Registry(
    {"cross_entropy": CrossEntropy}, register="holdfast.methods.register_objective"
)
OBJECTIVE_LINES = {"cross_entropy": "plain cross-entropy, hard or soft targets"}


def register_objective(name: str, build: Callable[..., Objective], line: str) -> None:
    """Register an objective: ``build`` takes a recipe's options, and values of the loop that are its arguments."""
    add_row(OBJECTIVES, name, build, what="objective")
    OBJECTIVE_LINES[name] = line


def build_objective(name: str, options: Mapping[str, Any], context: Mapping[str, Any] | None = None) -> Objective:
    """The registered objective of that name.

    ``context`` holds values from the loop (``model``, ``size``, ``mean``, ``std``, the task's ``task_loss`` and
    ``goal``, the names of the ``classes``); an objective receives those that are among its arguments.
    """
    context = context or {}
    if name not in OBJECTIVES:
        hint = nearest(name, OBJECTIVES) or f"; known are {', '.join(OBJECTIVES)}"
        raise HoldfastError(f"unknown objective {name!r}{hint}")
    arguments = inspect.signature(OBJECTIVES[name]).parameters
    options = checked_options(options, OBJECTIVES[name], whose=f"objective {name!r}", withheld=[*context])
    given = {*options, *context}
    needed = [key for key, argument in arguments.items() if key not in given and argument.default is argument.empty]
    needed = [key for key in needed if arguments[key].kind is not inspect.Parameter.VAR_KEYWORD]
    if needed:
        raise HoldfastError(f"objective {name!r} needs {' and '.join(needed)}: use it in a recipe with model.adapt")
    return OBJECTIVES[name](**options, **{key: value for key, value in context.items() if key in arguments})


def detection_losses(model: nn.Module, images: Any, targets: Any) -> Loss:
    """The summed losses of a detector in training mode; targets are a list of boxes, labels and masks."""
    losses = model(images, targets)
    return Loss(sum(losses.values()), {name: loss.detach() for name, loss in losses.items()})
