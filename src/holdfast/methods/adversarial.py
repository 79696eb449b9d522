"""Adversarial training: cross-entropy on images attacked in the training step (Madry et al. 2018)."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from holdfast.attacks import GradientAttack, PixelModel, perturb
from holdfast.io.validation import checked_options
from holdfast.methods.loss_terms import Context, ForwardPass, Term
from holdfast.methods.objective import Loss


@dataclass(frozen=True)
class AdversarialTraining(Term):
    """Cross-entropy on adversarial images instead of, or beside, the clean ones.

    Attributes:
        attack: the inner maximisation, in units of [0, 1] pixels.
        weight: weight of the adversarial images' loss.
        clean_weight: weight of the clean images' loss; 0 trains on adversarial images alone (Madry et al. 2018).
    """

    attack: GradientAttack = field(default_factory=lambda: GradientAttack(eps=1 / 255, alpha=0.5 / 255, steps=5))
    weight: float = 1.0
    clean_weight: float = 0.0

    def loss(self, forward: ForwardPass) -> Loss:
        """The weighted loss of the adversarial images, from a separate forward pass after the clean images."""
        setting, images, targets = forward.setting, forward.images, forward.targets
        mean, std = setting.mean.to(images), setting.std.to(images)
        pixels = (images * std + mean).clamp(0, 1)
        wrapped = PixelModel(forward.model, mean=setting.mean.flatten().tolist(), std=setting.std.flatten().tolist())
        seed = int(
            torch.randint(2**31, ())
        )  # from torch's generator, which the loop seeds: new random starts in every step
        attacked = perturb(self.attack, wrapped.to(images.device), pixels, targets, seed=seed, goal=setting.goal)
        loss = setting.task_loss(forward.model((attacked - mean) / std), targets)
        return Loss(self.weight * loss, {"adversarial_cross_entropy": loss.detach()})


def adversarial_term(options: Any, context: Context) -> AdversarialTraining:
    """Build the term from a recipe's option ``adversarial``: the attack's settings, ``weight`` and ``clean_weight``.

    Without ``alpha``, the step size is ε/2, the ratio of RVT's PGD.
    """
    both = (GradientAttack, AdversarialTraining)
    given = checked_options(options, *both, whose="'adversarial'", withheld=["attack"])
    weights = {name: given.pop(name) for name in ("weight", "clean_weight") if name in given}
    usual = AdversarialTraining().attack
    alpha = usual.alpha * given.get("eps", usual.eps) / usual.eps or usual.alpha
    return AdversarialTraining(attack=replace(usual, **{"alpha": alpha, **given}), **weights)
