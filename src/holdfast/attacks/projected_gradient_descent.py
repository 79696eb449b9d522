"""Attacks that climb a loss: one composition of loss, step and projection.

FGSM (Goodfellow et al. 2015) is one step of it, PGD (Madry et al. 2018) several from a random start.
"""

from dataclasses import asdict, dataclass
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
    """A gradient attack's settings.

    Attributes:
        eps: radius of the ball around the image, in units of [0,1] pixels.
        alpha: length of a step, in the same units.
        steps: number of steps.
        norm: ``linf`` or ``l2``.
        random_start: begin at a random point of the ball, keyed per image, instead of at the image.
        restarts: independent starts; an image keeps the first that succeeds, else the one with the highest loss.
        targeted: labels are the classes to reach rather than those to leave.
        loss: one of the goal's losses; of one class per image `cross_entropy` or `margin`.
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
        """Attack a batch and score it: `perturb`, plus one forward pass."""
        adversarial = perturb(self, model, images, labels, seed=seed, ids=ids, goal=goal)
        with attack_mode(model) as quiet:
            output = score(quiet, adversarial, labels, goal=goal)
        hit = goal.right(output, labels)
        record = {"attack": "gradient", **asdict(self), "seed": seed}
        return AttackResult(adversarial, goal.predicted(output), hit if self.targeted else ~hit, record)


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
) -> Tensor:
    """Adversarial images, (B, C, H, W), detached: for a training step or to be scored.

    Args:
        attack: the settings.
        model: takes images in [0,1] (`from_pixels`) and returns logits; left exactly as it was.
        images: in [0,1].
        labels: class numbers, or class probabilities as mixup makes them.
        seed: of the random starts.
        ids: the images' names, which key their random starts; without them, their places in the batch.
        start: the perturbation to begin with, instead of a random one.
        mode: ``eval`` attacks the model in evaluation mode, ``keep`` in the mode it is in.
        goal: what is climbed, and what counts as wrong; a task's, one class per image unless given.
    """
    check_images(images)
    names = rng.image_ids(ids, len(images))
    with attack_mode(model, mode=mode) as quiet:
        images, labels = own_copies(images, labels)
        hill = _LossSurface(attack, quiet, goal)
        best = _ascend(hill, images, labels, _start(attack, images, start, seed, names, 0))
        if attack.restarts > 1:
            best = _restart(hill, images, labels, best, seed=seed, names=names)
    return best


@dataclass(frozen=True)
class _LossSurface:
    """What is climbed: an attack's loss of a model under a goal."""

    attack: GradientAttack
    model: nn.Module
    goal: Criterion

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
    """Projected gradient ascent from a random start; the last iterate is returned.

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


def _ascend(hill: _LossSurface, images: Tensor, labels: Any, delta: Tensor) -> Tensor:
    attack = hill.attack
    norm = NORMS[attack.norm]
    length = -attack.alpha if attack.targeted else attack.alpha
    adversarial = _project(attack, images, images + delta)
    for _ in range(attack.steps):
        direction = norm.step(_gradient(hill, adversarial, labels))
        adversarial = _project(attack, images, adversarial.add_(direction, alpha=length))
    return adversarial


def _project(attack: GradientAttack, images: Tensor, adversarial: Tensor) -> Tensor:
    """First the ball, then [0,1]: the image is in both, so clamping never leads out of the ball again."""
    return NORMS[attack.norm].project(adversarial.sub_(images), attack.eps).add_(images).clamp_(0, 1)


def _gradient(hill: _LossSurface, adversarial: Tensor, labels: Any) -> Tensor:
    points = adversarial.detach().requires_grad_()
    output = hill.model(points)
    hill.goal.check(output, labels)
    height = hill.loss(single_or_double(output), labels).sum()
    check_differentiable(height)
    (gradient,) = torch.autograd.grad(height, points)
    return gradient


def _restart(
    hill: _LossSurface,
    images: Tensor,
    labels: Any,
    best: Tensor,
    *,
    seed: int,
    names: list[int | str],
) -> Tensor:
    """Attack again what still stands."""
    height, fooled = _judge(hill, best, labels)
    for restart in range(1, hill.attack.restarts):
        left = (~fooled).nonzero().squeeze(1)
        if not len(left):
            break
        delta = _start(hill.attack, images[left], None, seed, [names[i] for i in left.tolist()], restart)
        again = _ascend(hill, images[left], labels[left], delta)
        again_height, again_fooled = _judge(hill, again, labels[left])
        better = again_fooled | (again_height > height[left])
        best[left[better]], height[left[better]] = again[better], again_height[better]
        fooled[left] = again_fooled
    return best


def _judge(hill: _LossSurface, adversarial: Tensor, labels: Any) -> tuple[Tensor, Tensor]:
    """How high the loss is (low counts as high for a target), and whether the goal is reached; per image."""
    output = score(hill.model, adversarial, labels, goal=hill.goal)
    loss, hit = hill.loss(output, labels), hill.goal.right(output, labels)
    return (-loss, hit) if hill.attack.targeted else (loss, ~hit)
