"""Attack criteria: the loss that an attack maximises and the test for a misclassification, one criterion per task.

`Misclassification` (one class per image) is the default; its losses and checks are below.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from holdfast.errors import HoldfastError

Loss = Callable[[Any, Any], Tensor]


class Criterion(Protocol):
    """The loss an attack maximises, and the test of whether a prediction is still right.

    Attributes:
        losses: the losses by the names that attacks choose from; each takes the model's output and the targets and
            returns one value per image, (B,).
    """

    losses: Mapping[str, Loss]

    def check(self, output: Any, targets: Any) -> None:
        """Raise an error for an output without a usable loss, and for targets that do not fit it."""
        ...

    def predicted(self, output: Any) -> Any:
        """The prediction that an output encodes."""
        ...

    def right(self, output: Any, targets: Any) -> Tensor:
        """Whether the prediction for each image is right, (B,)."""
        ...


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy per image, of hard or soft labels."""
    return nn.functional.cross_entropy(logits, labels, reduction="none")


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """The highest wrong logit minus the right one (Carlini and Wagner 2017), per image."""
    hard = classes(labels).unsqueeze(1)
    right = logits.gather(1, hard).squeeze(1)
    return logits.scatter(1, hard, float("-inf")).amax(dim=1) - right


def classes(labels: Tensor) -> Tensor:
    """Class indices of hard or soft labels."""
    return labels.argmax(dim=1) if labels.is_floating_point() else labels


def check_targets(targets: Tensor, *, count: int, classes: int) -> None:
    """Raise an error for targets that are neither class indices in range nor rows of class probabilities."""
    if targets.is_floating_point():
        if targets.shape != (count, classes):
            raise HoldfastError(
                f"soft labels must have shape ({count}, {classes}): images, classes; got {tuple(targets.shape)}"
            )
        return
    if targets.shape != (count,):
        raise HoldfastError(f"labels must have shape ({count},), one per image, got {tuple(targets.shape)}")
    if count and not 0 <= int(targets.min()) <= int(targets.max()) < classes:
        raise HoldfastError(
            f"labels must lie in 0…{classes - 1} for a model of {classes} classes, "
            f"got {int(targets.min())}…{int(targets.max())}"
        )


def check_logits(logits: Tensor, targets: Tensor) -> None:
    """Raise an error for logits of the wrong shape or not finite, and for targets that do not fit them."""
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        came = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise HoldfastError(f"the model must return logits of shape (images, classes), got {came}")
    check_targets(targets, count=logits.shape[0], classes=logits.shape[1])
    if not torch.isfinite(logits).all():
        bad = int((~torch.isfinite(logits).all(dim=1)).sum())
        raise HoldfastError(
            f"the model must return finite logits, got NaN or infinity for {bad} of {len(logits)} images"
        )


class Misclassification:
    """One class per image; any other class is a misclassification."""

    losses: Mapping[str, Loss] = {"cross_entropy": cross_entropy, "margin": margin}

    def check(self, output: Tensor, targets: Tensor) -> None:
        """Check for finite logits (B, classes) and labels that fit them."""
        check_logits(output, targets)

    def predicted(self, output: Tensor) -> Tensor:
        """The class with the largest logit, (B,)."""
        return output.argmax(dim=1)

    def right(self, output: Tensor, targets: Tensor) -> Tensor:
        """Whether the largest logit is the label's, (B,)."""
        return output.argmax(dim=1) == classes(targets)


MISCLASSIFICATION = Misclassification()
LOSSES = set(Misclassification.losses)  # loss names that any criterion has; a task with others adds them
