"""`attack_mode`: a context manager that puts a model into eval mode with gradients on and restores it afterwards."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from holdfast.attacks.criteria import MISCLASSIFICATION, Criterion
from holdfast.attacks.pixel_model import local
from holdfast.errors import HoldfastError
from holdfast.runtime.device import training_modes_kept

Mode = Literal["eval", "keep"]
MODES = ("eval", "keep")


@contextmanager
def attack_mode(model: nn.Module, *, mode: Mode = "eval") -> Iterator[nn.Module]:
    """Yield the model ready for an attack: without data-parallel wrappers, with copied buffers and gradients enabled.

    ``mode="eval"`` attacks the network that will be deployed; ``"keep"`` attacks it in its current mode, for instance
    in training mode, where dropout keeps drawing from torch's generator. Afterwards the modes and the buffer objects
    (BatchNorm's statistics) are restored. Parameters are never touched: attacks compute the gradient with respect to
    the images alone.
    """
    if mode not in MODES:
        raise HoldfastError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    model = local(model)
    modules = list(model.modules())
    with ExitStack() as stack:
        stack.enter_context(training_modes_kept(model))
        if mode == "eval":
            model.eval()
        elif any(module.training for module in modules):
            stack.enter_context(_spare_buffers(modules))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        yield model


def own_copies(images: Tensor, labels: Any) -> tuple[Tensor, Any]:
    """Detached copies: autograd cannot differentiate a tensor that was made in inference mode."""
    return images.detach().clone(), labels.detach().clone() if isinstance(labels, Tensor) else labels


def predict(model: nn.Module, images: Tensor, targets: Any) -> Tensor:
    """The predicted classes, (B,); raises an error if logits are not finite."""
    return MISCLASSIFICATION.predicted(score(model, images, targets))


@torch.no_grad()
def score(model: nn.Module, images: Tensor, targets: Any, *, goal: Criterion = MISCLASSIFICATION) -> Any:
    """The model's output, checked by the criterion, without a graph and in float32 or wider."""
    output = single_or_double(forward_without_cached_casts(model, images))
    goal.check(output, targets)
    return output


def single_or_double(output: Any) -> Any:
    """Cast the half-precision logits of an autocast pass to float32; wider ones are returned as they are."""
    # in half precision the softmax of confident logits saturates, the cross-entropy becomes 0 and its gradient with
    # it: the attack would stop at exactly the images that it should work on hardest
    half = isinstance(output, Tensor) and output.dtype in (torch.float16, torch.bfloat16)
    return output.float() if half else output


def forward_without_cached_casts(model: nn.Module, images: Tensor) -> Tensor:
    """Run the model without gradients, safely inside an autocast region that also runs passes with gradients."""
    # some versions of torch keep the half-precision weights that autocast makes in this pass; made without gradients,
    # they would cut the gradient of a training pass in the same autocast region
    device = images.device.type
    if not torch.is_autocast_enabled(device):
        return model(images)
    with torch.autocast(device, dtype=torch.get_autocast_dtype(device), cache_enabled=False):
        return model(images)


@contextmanager
def _spare_buffers(modules: list[nn.Module]) -> Iterator[None]:
    kept = [(module, name, buffer) for module in modules for name, buffer in module._buffers.items()]
    try:
        for module, name, buffer in kept:
            module._buffers[name] = None if buffer is None else buffer.clone()
        yield
    finally:
        for module, name, buffer in kept:
            module._buffers[name] = buffer
