"""Projected gradient descent: FGSM and PGD as one composition of loss, step and projection.

FGSM (Goodfellow et al. 2015) is one step, PGD (Madry et al. 2018) several from a random start.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from holdfast.attacks import rng
from holdfast.attacks.base import AttackResult
from holdfast.attacks.criteria import LOSSES, MISCLASSIFICATION, Criterion
from holdfast.attacks.eval_mode import Mode, attack_mode, own_copies, score, single_or_double
from holdfast.attacks.norms import NORMS
from holdfast.attacks.pixel_model import check_differentiable, check_images
from holdfast.errors import HoldfastError, nearest


@dataclass(frozen=True)
class GradientAttack:
    """Settings of FGSM and PGD.

    Attributes:
        eps: radius of the ball around the image, in units of [0,1] pixels.
        alpha: step size, in the same units.
        steps: number of steps.
        norm: ``linf`` or ``l2``.
        random_start: start at a random point of the ball, keyed per image, instead of at the image.
        restarts: independent starts; each image keeps the first that succeeds, else the one with the highest loss.
        targeted: labels are target classes instead of true classes.
        loss: one of the criterion's losses; `cross_entropy` or `margin` for one class per image.
    """

    eps: float
    alpha: float
    steps: int
    norm: Literal["linf", "l2"] = "linf"
    random_start: bool = True
    restarts: int = 1
    targeted: bool = False
    loss: str = "cross_entropy"

    def __post_init__(self) -> None:
        if not self.eps >= 0:
            raise HoldfastError(f"eps must be 0 or more, got {self.eps}")
        if not self.alpha > 0:
            raise HoldfastError(f"alpha must be positive, got {self.alpha}")
        for name in ("steps", "restarts"):
            if getattr(self, name) < 1:
                raise HoldfastError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.restarts > 1 and not self.random_start:
            raise HoldfastError(f"restarts must be 1 without a random start, got {self.restarts}")
        for name, known in (("norm", list(NORMS)), ("loss", sorted(LOSSES))):
            if getattr(self, name) not in known:
                value = getattr(self, name)
                raise HoldfastError(f"{name} must be one of {', '.join(known)}, got {value!r}{nearest(value, known)}")

    def __call__(
        self,
        model: nn.Module,
        images: Tensor,
        labels: Any,
        *,
        seed: int = 0,
        ids: rng.Ids | None = None,
        goal: Criterion = MISCLASSIFICATION,
    ) -> AttackResult:
        """Attack a batch and predict it: `perturb`, plus one forward pass."""
        adversarial = perturb(self, model, images, labels, seed=seed, ids=ids, goal=goal)
        with attack_mode(model) as victim:
            output = score(victim, adversarial, labels, goal=goal)
        right = goal.right(output, labels)
        record = {"attack": "gradient", **asdict(self), "seed": seed}
        return AttackResult(adversarial, goal.predicted(output), right if self.targeted else ~right, record)


def perturb(
    attack: GradientAttack,
    model: nn.Module,
    images: Tensor,
    labels: Any,
    *,
    seed: int = 0,
    ids: rng.Ids | None = None,
    start: Tensor | None = None,
    mode: Mode = "eval",
    goal: Criterion = MISCLASSIFICATION,
    goal_at: Callable[[int], Criterion] | None = None,
) -> Tensor:
    """Adversarial images, (B, C, H, W), detached, for a training step or for evaluation.

    Args:
        attack: the settings.
        model: takes images in [0,1] (`from_pixels`) and returns logits; it is left unchanged.
        images: in [0,1].
        labels: class indices, or class probabilities from mixup.
        seed: seed of the random starts.
        ids: image ids, which key the random starts; by default the positions in the batch.
        start: the initial perturbation, instead of a random one.
        mode: ``eval`` attacks the model in evaluation mode, ``keep`` in the mode it is in.
        goal: the task's criterion (loss, and test for success); by default one class per image.
        goal_at: the criterion of each step, counted from 1, where it changes from step to step.
    """
    check_images(images)
    names = rng.image_ids(ids, len(images))
    with attack_mode(model, mode=mode) as victim:
        images, labels = own_copies(images, labels)
        loss_fn = _AttackLoss(attack, victim, goal, goal_at)
        best = _ascend(loss_fn, images, labels, _start(attack, images, start, seed, names, 0))
        if attack.restarts > 1:
            best = _restart(loss_fn, images, labels, best, seed=seed, names=names)
    return best


@dataclass(frozen=True)
class _AttackLoss:
    """The loss that an attack maximises: one of the criterion's losses of a model's output."""

    attack: GradientAttack
    model: nn.Module
    goal: Criterion
    goal_at: Callable[[int], Criterion] | None = None

    def at_step(self, step: int) -> "_AttackLoss":
        """The loss of one step, counted from 1."""
        return self if self.goal_at is None else replace(self, goal=self.goal_at(step))

    def loss(self, output: Any, labels: Any) -> Tensor:
        name, known = self.attack.loss, self.goal.losses
        if name not in known:
            raise HoldfastError(f"loss must be one of {', '.join(known)}, got {name!r}{nearest(name, known)}")
        return known[name](output, labels)


def fgsm(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    eps: float = 1 / 255,
    targeted: bool = False,
    mode: Mode = "eval",
) -> Tensor:
    """One step of length ε along the sign of the gradient.

    Goodfellow et al. 2015; RVT's protocol is ε = 1/255, no random start.
    """
    # with ε = 0 the projection undoes the step, but a step size must be positive
    attack = GradientAttack(eps=eps, alpha=eps or 1.0, steps=1, random_start=False, targeted=targeted)
    return perturb(attack, model, images, labels, mode=mode)


def pgd(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    eps: float = 1 / 255,
    alpha: float = 0.5 / 255,
    steps: int = 5,
    norm: Literal["linf", "l2"] = "linf",
    random_start: bool = True,
    restarts: int = 1,
    targeted: bool = False,
    loss: str = "cross_entropy",
    seed: int = 0,
    ids: rng.Ids | None = None,
    start: Tensor | None = None,
    mode: Mode = "eval",
) -> Tensor:
    """Projected gradient ascent from a random start; returns the last iterate.

    Madry et al. 2018; the defaults are RVT's protocol (ε = 1/255, α = 0.5/255, 5 steps). For the other arguments see
    `GradientAttack` and `perturb`.
    """
    attack = GradientAttack(eps, alpha, steps, norm, random_start, restarts, targeted, loss)
    return perturb(attack, model, images, labels, seed=seed, ids=ids, start=start, mode=mode)


def _start(
    attack: GradientAttack, images: Tensor, start: Tensor | None, seed: int, names: list[int | str], restart: int
) -> Tensor:
    if start is not None:
        if start.shape != images.shape:
            raise HoldfastError(f"start must have the images' shape {tuple(images.shape)}, got {tuple(start.shape)}")
        return start.detach().to(images)
    if not attack.random_start:
        return torch.zeros_like(images)
    return NORMS[attack.norm].start(images, attack.eps, seed=seed, ids=names, purpose=f"start/{restart}")


def _ascend(loss_fn: _AttackLoss, images: Tensor, labels: Any, delta: Tensor) -> Tensor:
    attack = loss_fn.attack
    norm = NORMS[attack.norm]
    step_size = -attack.alpha if attack.targeted else attack.alpha
    adversarial = _project(attack, images, images + delta)
    for step in range(1, attack.steps + 1):
        direction = norm.step(_gradient(loss_fn.at_step(step), adversarial, labels))
        adversarial = _project(attack, images, adversarial.add_(direction, alpha=step_size))
    return adversarial


def _project(attack: GradientAttack, images: Tensor, adversarial: Tensor) -> Tensor:
    """Project onto the ε-ball, then clamp to [0,1]."""
    # in this order: clamping moves every value towards the image, which lies in [0,1], so the result is still in the
    # ball; projecting last could leave [0,1]
    return NORMS[attack.norm].project(adversarial.sub_(images), attack.eps).add_(images).clamp_(0, 1)


def _gradient(loss_fn: _AttackLoss, adversarial: Tensor, labels: Any) -> Tensor:
    points = adversarial.detach().requires_grad_()
    output = loss_fn.model(points)
    loss_fn.goal.check(output, labels)
    # the sum, not the mean: an image's gradient must not depend on how many others are in its batch
    loss = loss_fn.loss(single_or_double(output), labels).sum()
    check_differentiable(loss)
    (gradient,) = torch.autograd.grad(loss, points)
    return gradient


def _restart(
    loss_fn: _AttackLoss,
    images: Tensor,
    labels: Any,
    best: Tensor,
    *,
    seed: int,
    names: list[int | str],
) -> Tensor:
    """Attack the images that are not fooled yet again, from new random starts."""
    loss, fooled = _evaluate(loss_fn, best, labels)
    for restart in range(1, loss_fn.attack.restarts):
        left = (~fooled).nonzero().squeeze(1)
        if not len(left):
            break
        delta = _start(loss_fn.attack, images[left], None, seed, [names[i] for i in left.tolist()], restart)
        retried = _ascend(loss_fn, images[left], labels[left], delta)
        new_loss, new_fooled = _evaluate(loss_fn, retried, labels[left])
        better = new_fooled | (new_loss > loss[left])
        best[left[better]], loss[left[better]] = retried[better], new_loss[better]
        fooled[left] = new_fooled
    return best


def _evaluate(loss_fn: _AttackLoss, adversarial: Tensor, labels: Any) -> tuple[Tensor, Tensor]:
    """The loss (negated for targeted attacks) and whether the attack succeeded, per image."""
    output = score(loss_fn.model, adversarial, labels, goal=loss_fn.goal)
    loss, right = loss_fn.loss(output, labels), loss_fn.goal.right(output, labels)
    return (-loss, right) if loss_fn.attack.targeted else (loss, ~right)
