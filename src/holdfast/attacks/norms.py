"""How to measure a perturbation: steepest step, projection and random start of each norm."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from holdfast.attacks import rng


class Start(Protocol):
    """Where an attack begins."""

    def __call__(self, images: Tensor, eps: float, *, seed: int, ids: Sequence[int | str], purpose: str) -> Tensor:
        """A random point of the ball for every image, from the image's own stream."""


@dataclass(frozen=True)
class Norm:
    """One geometry. ``step`` and ``project`` are pure functions of (B, …) tensors."""

    step: Callable[[Tensor], Tensor]
    project: Callable[[Tensor, float], Tensor]
    start: Start


def linf_project(delta: Tensor, eps: float) -> Tensor:
    """The nearest perturbation with no entry above ε."""
    return delta.clamp(-eps, eps)


def linf_start(images: Tensor, eps: float, *, seed: int, ids: Sequence[int | str], purpose: str) -> Tensor:
    """U(−ε, ε) per value."""
    return (2 * rng.uniform(images, seed=seed, ids=ids, purpose=purpose) - 1) * eps


def l2_step(gradient: Tensor) -> Tensor:
    """The gradient at length 1; a zero gradient stays zero, however small ones (whose squares underflow) count."""
    tiny = torch.finfo(gradient.dtype).tiny
    scaled = gradient / gradient.abs().amax(dim=(1, 2, 3), keepdim=True).clamp_min(tiny)
    return scaled / _length(scaled).clamp_min(tiny)


def l2_project(delta: Tensor, eps: float) -> Tensor:
    """The nearest perturbation of length ε or less."""
    return delta * (eps / _length(delta).clamp_min(torch.finfo(delta.dtype).tiny)).clamp_max(1)


def l2_start(images: Tensor, eps: float, *, seed: int, ids: Sequence[int | str], purpose: str) -> Tensor:
    """Uniform in the ball: a normal direction, and a radius whose d-th power is uniform."""
    direction = l2_step(rng.normal(images, seed=seed, ids=ids, purpose=purpose))
    radius = rng.uniform(images[:, 0, 0, 0], seed=seed, ids=ids, purpose=f"{purpose}/radius")
    return direction * (eps * radius ** (1 / math.prod(images.shape[1:]))).view(-1, 1, 1, 1)


def _length(x: Tensor) -> Tensor:
    return x.flatten(1).norm(dim=1).view(-1, *[1] * (x.ndim - 1))


NORMS: dict[str, Norm] = {
    "linf": Norm(step=torch.sign, project=linf_project, start=linf_start),
    "l2": Norm(step=l2_step, project=l2_project, start=l2_start),
}
