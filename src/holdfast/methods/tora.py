"""TORA-ViT's objective: λ·L_ROB + (1 − λ)·L_ACC of one prediction; models/adaptation.py lists what each phase trains.

Phases and losses are the authors' (Li and Xu, CVPR 2023). Ours, since the slides do not specify them: the prediction
that each loss reads, the attack on that same prediction, and heads that are trained in phase 1 only.
"""

from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.attacks import GradientAttack, PixelModel, perturb
from holdfast.errors import HoldfastError
from holdfast.methods.objective import Loss
from holdfast.models.adaptation import PHASES
from holdfast.runtime.device import unwrap_model


class TradeOff:
    """λ·L_ROB + (1 − λ)·L_ACC: cross-entropy on adversarial and on clean images, in one pass of both.

    Args:
        weight: λ, from 0 (clean images alone) to 1 (adversarial ones alone).
        attack: the inner maximisation against the trained prediction, in units of [0, 1] pixels.
        view: the prediction that is trained and attacked.
        mean: mean of the images' normalisation.
        std: standard deviation of the images' normalisation.
        own_heads: let each loss read its own head's prediction, L_ROB ``rob`` and L_ACC ``acc``, instead of ``view``: a
            second reading of the slides for models that fuse nothing, whose two heads would else learn the same.
    """

    def __init__(
        self,
        weight: float,
        *,
        attack: GradientAttack | None = None,
        view: str = "joint",
        mean: Sequence[float] = IMAGENET_DEFAULT_MEAN,
        std: Sequence[float] = IMAGENET_DEFAULT_STD,
        own_heads: bool = False,
    ) -> None:
        if not 0 <= weight <= 1:
            raise HoldfastError(f"lambda must lie between 0 and 1, got {weight}")
        self.weight, self.view, self.own_heads = weight, view, own_heads
        self.attack = attack or GradientAttack(eps=1 / 255, alpha=0.5 / 255, steps=5)
        self.mean, self.std = tuple(mean), tuple(std)

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Loss:
        """The loss of a batch of normalised images with hard or soft targets."""
        if self.own_heads and not {"acc", "rob"} <= {*cast(Any, unwrap_model(model)).heads}:
            raise HoldfastError("own_heads needs the heads acc and rob, which this model does not have")
        batches = {}
        if self.weight > 0:
            batches["adversarial_cross_entropy"] = (self.weight, self._adversarial(model, images, targets))
        if self.weight < 1:
            batches["clean_cross_entropy"] = (1 - self.weight, images)
        logits = self._predict(model, torch.cat([batch for _, batch in batches.values()]), [*batches])
        losses = [F.cross_entropy(part, targets) for part in logits]
        total = torch.stack([weight * loss for (weight, _), loss in zip(batches.values(), losses, strict=True)]).sum()
        return Loss(total, {name: loss.detach() for name, loss in zip(batches, losses, strict=True)})

    def _predict(self, model: nn.Module, images: Tensor, losses: Sequence[str]) -> list[Tensor]:
        """The logits that every loss reads, from one pass of its images and those of the others."""
        if not self.own_heads:
            return list(model(images, view=self.view).chunk(len(losses)))
        heads = [*cast(Any, unwrap_model(model)).heads]
        each = model(images, view="each").chunk(len(losses), dim=1)
        return [logits[heads.index(self._view(loss))] for logits, loss in zip(each, losses, strict=True)]

    def _view(self, loss: str) -> str:
        """The prediction that a loss reads."""
        own = "rob" if loss == "adversarial_cross_entropy" else "acc"
        return own if self.own_heads else self.view

    def _adversarial(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        view = self._view("adversarial_cross_entropy")
        pixel_model = PixelModel(OneView(unwrap_model(model), view), mean=self.mean, std=self.std)
        pixel_model.to(images.device)
        pixels = (images * pixel_model.std + pixel_model.mean).clamp(0, 1)
        seed = int(
            torch.randint(2**31, ())
        )  # from torch's generator, which the loop seeds: new random starts in every step
        return pixel_model.normalise(perturb(self.attack, pixel_model, pixels, targets, seed=seed))


class OneView(nn.Module):
    """Wrapper that selects one prediction of a model with several."""

    def __init__(self, model: nn.Module, view: str) -> None:
        super().__init__()
        self.model, self.view = model, view
        self.training = model.training

    def forward(self, images: Tensor) -> Tensor:
        """Logits of that prediction."""
        return self.model(images, view=self.view)


def tora_objective(
    *,
    phase: str,
    trade_off: float | None,
    mean: Sequence[float],
    std: Sequence[float],
    eps: float = 1 / 255,
    alpha: float = 0.5 / 255,
    steps: int = 5,
    norm: Literal["linf", "l2"] = "linf",
    random_start: bool = True,
    own_heads: bool = False,
) -> TradeOff:
    """The objective of a phase from a recipe's options; phase and λ come from ``train.phases``."""
    weight = PHASES[phase].weight if PHASES[phase].weight is not None else trade_off
    if weight is None:
        raise HoldfastError("train.phases.weights must hold one weight between 0 and 1 for phase joint, got none")
    attack = GradientAttack(eps, alpha, steps, norm, random_start)
    return TradeOff(weight, attack=attack, view=PHASES[phase].view, mean=mean, std=std, own_heads=own_heads)
