"""SegPGD (Gu et al., ECCV 2022) and the criterion of attacks on segmentation models.

With this criterion, FGSM and PGD maximise the pixel-wise cross-entropy. SegPGD weights pixels that are still classified
correctly by 1 − λ_t and the others by λ_t = (t − 1) / 2T: early steps misclassify pixels, later ones keep them
misclassified. Every record includes ε and steps, because published values vary.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.attacks import rng
from holdfast.attacks.base import AttackResult
from holdfast.attacks.criteria import Criterion, Loss
from holdfast.attacks.eval_mode import Mode, attack_mode, score
from holdfast.attacks.projected_gradient_descent import GradientAttack, perturb
from holdfast.errors import HoldfastError

IGNORED = 255


class PixelMisclassification:
    """One class per pixel: an attack on an image succeeds when no labelled pixel is classified correctly.

    Args:
        wrong_weight: weight of pixels that are already misclassified; the others weigh 1 minus it. None weights all
            pixels equally.
    """

    losses: Mapping[str, Loss]

    def __init__(self, wrong_weight: float | None = None) -> None:
        self.losses = {"cross_entropy": partial(pixel_attack_loss, wrong_weight=wrong_weight)}

    def check(self, output: Any, targets: Any) -> None:
        """Check for finite logits (B, classes, H, W) and label maps (B, H, W) that fit them."""
        if not isinstance(output, Tensor) or output.ndim != 4:
            came = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise HoldfastError(f"the model must return logits (images, classes, height, width), got {came}")
        size = (len(output), *output.shape[-2:])
        if targets.shape != size:
            raise HoldfastError(f"labels must be maps of shape {size}, got {tuple(targets.shape)}")
        known = targets[targets != IGNORED]
        if known.numel() and not 0 <= int(known.min()) <= int(known.max()) < output.shape[1]:
            low, high = int(known.min()), int(known.max())
            raise HoldfastError(f"labels must lie in 0…{output.shape[1] - 1} or be {IGNORED}, got {low}…{high}")
        if not torch.isfinite(output).all():
            raise HoldfastError("the model must return finite logits, got NaN or infinity")

    def predicted(self, output: Tensor) -> Tensor:
        """The predicted class of each pixel, (B, H, W)."""
        return output.argmax(dim=1)

    def right(self, output: Tensor, targets: Tensor) -> Tensor:
        """Whether any labelled pixel is still classified correctly, (B,)."""
        return (output.argmax(dim=1) == targets).flatten(1).any(dim=1)


def pixel_attack_loss(logits: Tensor, labels: Tensor, *, wrong_weight: float | None = None) -> Tensor:
    """Mean weighted cross-entropy of each image's labelled pixels, (B,); SegPGD, Eq. 4."""
    each = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="none")  # B H W
    if wrong_weight is not None:
        right = logits.detach().argmax(dim=1) == labels
        each = torch.where(right, 1 - wrong_weight, wrong_weight) * each
    # an image without labelled pixels has the loss 0, not NaN, which would spoil the gradient of the whole batch
    return each.flatten(1).sum(dim=1) / (labels != IGNORED).flatten(1).sum(dim=1).clamp_min(1)


PIXEL_MISCLASSIFICATION = PixelMisclassification()


@dataclass(frozen=True)
class SegPGD:
    """SegPGD's settings: PGD steps, each with its own weighting of right and wrong pixels.

    Attributes:
        eps: radius of the ball around the image, in units of [0,1] pixels.
        alpha: step size, in the same units.
        steps: number of steps.
        norm: ``linf`` or ``l2``.
        random_start: start at a random point of the ball, keyed per image, instead of at the image.
    """

    eps: float
    alpha: float
    steps: int
    norm: Literal["linf", "l2"] = "linf"
    random_start: bool = True

    def __post_init__(self) -> None:
        self.as_pgd()  # checks the settings

    def as_pgd(self) -> GradientAttack:
        """PGD with the same settings."""
        return GradientAttack(self.eps, self.alpha, self.steps, self.norm, random_start=self.random_start)

    def goal_at(self, step: int) -> PixelMisclassification:
        """The criterion of step t, with λ_t = (t − 1) / 2T for misclassified pixels."""
        return PixelMisclassification(wrong_weight=(step - 1) / (2 * self.steps))

    def __call__(
        self,
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        *,
        seed: int = 0,
        ids: rng.Ids | None = None,
        goal: Criterion = PIXEL_MISCLASSIFICATION,
    ) -> AttackResult:
        """Attack a batch and predict it; ``success`` is the map of misclassified labelled pixels."""
        if not isinstance(goal, PixelMisclassification):
            raise HoldfastError("SegPGD needs a class per pixel: use a PGD preset such as pgd5 for other tasks")
        adversarial = perturb_pixels(self, model, images, labels, seed=seed, ids=ids)
        with attack_mode(model) as victim:
            predictions = goal.predicted(score(victim, adversarial, labels, goal=goal))
        record = {"attack": "segpgd", **asdict(self), "seed": seed}
        return AttackResult(adversarial, predictions, (predictions != labels) & (labels != IGNORED), record)


def perturb_pixels(
    attack: SegPGD,
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    seed: int = 0,
    ids: rng.Ids | None = None,
    mode: Mode = "eval",
) -> Tensor:
    """Adversarial images of SegPGD, (B, C, H, W), detached; arguments as in `holdfast.attacks.perturb`."""
    return perturb(attack.as_pgd(), model, images, labels, seed=seed, ids=ids, mode=mode, goal_at=attack.goal_at)


# ε = 1/255 is RVT's radius for classifiers; ε = 8/255 in 20 steps is the base setting of SegPGD's authors
PIXEL_PRESETS: dict[str, GradientAttack | SegPGD] = {
    "segpgd5": SegPGD(eps=1 / 255, alpha=0.5 / 255, steps=5),
    "pgd20": GradientAttack(eps=8 / 255, alpha=0.01, steps=20),
    "segpgd20": SegPGD(eps=8 / 255, alpha=0.01, steps=20),
}
