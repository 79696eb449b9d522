"""Threat models: steepest-ascent step, projection and random start in the L∞ and L2 norms."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from holdfast.attacks import rng


class Start(Protocol):
    """Random start of an attack."""

    def __call__(self, images: Tensor, eps: float, *, seed: int, ids: Sequence[int | str], purpose: str) -> Tensor:
        """A random perturbation in the ε-ball for each image, from the image's own random stream."""


@dataclass(frozen=True)
class Norm:
    """The three operations of one norm; ``step`` and ``project`` are pure functions of (B, …) tensors."""

    step: Callable[[Tensor], Tensor]
    project: Callable[[Tensor, float], Tensor]
    start: Start


def linf_project(delta: Tensor, eps: float) -> Tensor:
    """The nearest perturbation of L∞ norm ≤ ε."""
    return delta.clamp(-eps, eps)


def linf_start(images: Tensor, eps: float, *, seed: int, ids: Sequence[int | str], purpose: str) -> Tensor:
    """U(−ε, ε) for each value of the images."""
    return (2 * rng.uniform(images, seed=seed, ids=ids, purpose=purpose) - 1) * eps


def l2_step(gradient: Tensor) -> Tensor:
    """The gradient scaled to L2 norm 1; a zero gradient stays zero."""
    # dividing by the largest entry first: the squares of a gradient below about 1e-19 underflow in float32, and a
    # confident model, whose gradients are that small, would look as if it could not be attacked
    tiny = torch.finfo(gradient.dtype).tiny
    scaled = gradient / gradient.abs().amax(dim=(1, 2, 3), keepdim=True).clamp_min(tiny)
    return scaled / _length(scaled).clamp_min(tiny)


def l2_project(delta: Tensor, eps: float) -> Tensor:
    """The nearest perturbation of L2 norm ≤ ε."""
    return delta * (eps / _length(delta).clamp_min(torch.finfo(delta.dtype).tiny)).clamp_max(1)


def l2_start(images: Tensor, eps: float, *, seed: int, ids: Sequence[int | str], purpose: str) -> Tensor:
    """A perturbation uniform in the ball: a normal direction, and a radius r with rᵈ uniform."""
    # the volume within radius r grows with rᵈ: a uniform radius would crowd the starts around the image
    direction = l2_step(rng.normal(images, seed=seed, ids=ids, purpose=purpose))
    radius = rng.uniform(images[:, 0, 0, 0], seed=seed, ids=ids, purpose=f"{purpose}/radius")
    return direction * (eps * radius ** (1 / math.prod(images.shape[1:]))).view(-1, 1, 1, 1)


def _length(x: Tensor) -> Tensor:
    return x.flatten(1).norm(dim=1).view(-1, *[1] * (x.ndim - 1))


NORMS: dict[str, Norm] = {
    "linf": Norm(step=torch.sign, project=linf_project, start=linf_start),
    "l2": Norm(step=l2_step, project=l2_project, start=l2_start),
}
