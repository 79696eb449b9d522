"""Sharpness-aware minimisation: SAM (Foret et al. 2021) and ASAM (Kwon et al. 2021).

A step takes two passes over the same batch with the same random numbers: the gradient at the weights w says where the
loss rises, ε; the gradient at w + ε is what the optimizer is given, at w. Every process and every forward pass has an ε
of its own, as published: ``train.batch_size`` is the size of the batch that ε is computed from, and
``train.accumulate`` makes the optimizer's batch larger without touching it.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from holdfast.training.recipe import SamRecipe

GUARD = 1e-12  # added to the norm, so that a zero gradient moves nothing
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
T = TypeVar("T")


def sharpness_aware(
    first: Callable[[], T], second: Callable[[], T], settings: SamRecipe, model: nn.Module, players: Iterable[nn.Module]
) -> tuple[T, T]:
    """Add the gradient at w + ε to those that are there, and return what both passes returned.

    Args:
        first: forward and backward pass at w, not shared between processes.
        second: the same at w + ε, whose gradients are kept.
        settings: ρ and, of ASAM, η.
        model: what is trained.
        players: further modules that learn from the same backward pass; they learn from the second one.
    """
    everything = [*model.parameters(), *(value for module in players for value in module.parameters())]
    accumulated = [parameter.grad for parameter in everything]
    _put_gradients(everything, [None] * len(everything))
    before = first()
    with perturbed(dict(model.named_parameters()), settings), kept_statistics(model):
        _put_gradients(everything, accumulated)
        after = second()
    return before, after


def _put_gradients(parameters: Iterable[nn.Parameter], gradients: Iterable[Tensor | None]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient


@contextmanager
def perturbed(parameters: Mapping[str, nn.Parameter], settings: SamRecipe) -> Iterator[None]:
    """The weights moved by ε along their gradients while the block lasts; then the very same ones again."""
    moved = {name: parameter for name, parameter in parameters.items() if parameter.grad is not None}
    before = {name: parameter.detach().clone() for name, parameter in moved.items()}
    with torch.no_grad():
        for name, step in ascent_steps(moved, settings).items():
            moved[name].add_(step)
    try:
        yield
    finally:
        with torch.no_grad():
            for name, parameter in moved.items():
                parameter.copy_(before[name])


def ascent_steps(parameters: Mapping[str, nn.Parameter], settings: SamRecipe) -> dict[str, Tensor]:
    r"""ε by name: ρ·g/‖g‖, or ρ·T²g/‖Tg‖ with T = \|w\| + η on weights (ASAM); none where g is not finite.

    The norm is that of all gradients together. A loss scale (fp16) cancels, so it need not be taken out.
    """
    gradients = {name: parameter.grad for name, parameter in parameters.items() if parameter.grad is not None}
    scales = {name: _scale(name, parameters[name], settings) for name in gradients}
    scaled = {name: value if scales[name] is None else scales[name] * value for name, value in gradients.items()}
    norm = float(torch.nn.utils.get_total_norm(list(scaled.values()))) if scaled else 0.0
    if not math.isfinite(norm):
        return {}
    length = settings.rho / (norm + GUARD)
    return {
        name: value * length if scales[name] is None else scales[name] * value * length
        for name, value in scaled.items()
    }


def _scale(name: str, parameter: nn.Parameter, settings: SamRecipe) -> Tensor | None:
    """ASAM's T: of tensors that are called weights; None for 1: biases, tokens, positional codes, and all of SAM."""
    return parameter.detach().abs() + settings.eta if settings.adaptive and "weight" in name else None


@contextmanager
def kept_statistics(model: nn.Module) -> Iterator[None]:
    """BatchNorm's running statistics, its counter too, are afterwards what they were before."""
    kept = [
        (buffer, buffer.detach().clone())
        for name, buffer in model.named_buffers()
        if name.rpartition(".")[2] in STATISTICS
    ]
    try:
        yield
    finally:
        for buffer, value in kept:
            buffer.copy_(value)
