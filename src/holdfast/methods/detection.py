"""What a detector is trained for: the losses that it returns itself, as torchvision's detectors do."""

from typing import Any

from torch import nn

from holdfast.methods.objective import Loss


def detection_losses(model: nn.Module, images: Any, targets: Any) -> Loss:
    """One forward pass in training mode; images as a list or a batch, targets as a list of boxes, labels, masks."""
    losses = model(images, targets)
    return Loss(sum(losses.values()), {name: loss.detach() for name, loss in losses.items()})
