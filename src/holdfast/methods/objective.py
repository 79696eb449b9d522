"""The seat of every objective: ``(model, images, targets) → Loss``. Here, plain cross-entropy.

An objective is called with the model as the loop has wrapped it, calls it as often as it likes, and returns one number
to minimise. It runs in anybody's loop:

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

TaskLoss = Callable[[Any, Any], Tensor]  # of a model's output and targets, one number


@dataclass(frozen=True)
class Loss:
    """What is minimised, and the parts of it (or figures beside it) that the log shows, detached."""

    total: Tensor
    parts: Mapping[str, Tensor] = field(default_factory=dict)


class Objective(Protocol):
    """What a model is trained for."""

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Loss:
        """Images (B, 3, H, W) and soft targets (B, classes) → the loss of this batch."""
        ...


@runtime_checkable
class OwnsModules(Protocol):
    """An objective that owns modules and moves them itself, from the same backward pass as the model's.

    A loop saves and restores ``modules`` and ``optimizers`` by name, averages the modules' gradients over processes,
    and calls ``update`` once per step, after the model's own optimizer; ``update`` also clears those gradients. A loss
    scale (fp16) is the player's to take out: where it clamps, it must be out before.
    """

    modules: Mapping[str, nn.Module]
    optimizers: Mapping[str, Optimizer]

    def update(self) -> Mapping[str, Tensor]:
        """Move the modules, clear their gradients, and return figures for the log."""
        ...


class CrossEntropy:
    """The task's own loss; of classification cross-entropy with soft targets, mean over the batch."""

    def __init__(self, task_loss: TaskLoss = F.cross_entropy) -> None:
        self.task_loss = task_loss

    def __call__(self, model: nn.Module, images: Tensor, targets: Any) -> Loss:
        """One forward pass."""
        loss = self.task_loss(model(images), targets)
        return Loss(loss, {"cross_entropy": loss.detach()})


OBJECTIVES: dict[str, Callable[..., Objective]] = {"cross_entropy": CrossEntropy}


def build_objective(name: str, options: Mapping[str, Any], context: Mapping[str, Any] | None = None) -> Objective:
    """The registered objective of that name.

    ``context`` is what only the loop knows (``model``, ``size``, ``mean``, ``std``, the task's ``task_loss`` and
    ``goal``, the names of the ``classes``); an objective that names one of these as an argument is given it.
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
        raise HoldfastError(
            f"objective {name!r} must know {' and '.join(needed)}: it belongs to a recipe with model.adapt"
        )
    return OBJECTIVES[name](**options, **{key: value for key, value in context.items() if key in arguments})


def detection_losses(model: nn.Module, images: Any, targets: Any) -> Loss:
    """One forward pass in training mode; images as a list or a batch, targets as a list of boxes, labels, masks."""
    losses = model(images, targets)
    return Loss(sum(losses.values()), {name: loss.detach() for name, loss in losses.items()})
