"""Attacks on segmentation: PGD on the pixel-wise loss, and SegPGD (Gu et al., ECCV 2022).

SegPGD weighs the pixels that are still right by 1 − λ_t and the others by λ_t = (t − 1) / 2T, so early steps turn
pixels and later ones keep them turned. ε and steps are part of every record: published ones vary.
"""

from dataclasses import asdict, dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.attacks import draws
from holdfast.attacks.gradient import into_ball, starting_point
from holdfast.attacks.norms import NORMS
from holdfast.attacks.pixels import check_differentiable, check_images
from holdfast.attacks.result import AttackResult
from holdfast.attacks.undisturbed import Mode, own, single_or_double, undisturbed
from holdfast.errors import HoldfastError, nearest

IGNORED = 255
WEIGHTINGS = ("segpgd", "equal")


@dataclass(frozen=True)
class PixelAttack:
    """An attack on every pixel of a label map at once.

    Attributes:
        eps: radius of the ball around the image, in units of [0,1] pixels.
        alpha: length of a step, in the same units.
        steps: number of steps.
        weighting: ``segpgd``, or ``equal`` for PGD on the plain pixel-wise cross-entropy.
        norm: ``linf`` or ``l2``.
        random_start: begin at a random point of the ball, keyed per image, instead of at the image.
    """

    eps: float
    alpha: float
    steps: int
    weighting: Literal["segpgd", "equal"] = "segpgd"
    norm: Literal["linf", "l2"] = "linf"
    random_start: bool = True

    def __post_init__(self) -> None:
        if not self.eps >= 0:
            raise HoldfastError(f"eps must be 0 or more, got {self.eps}")
        if not self.alpha > 0:
            raise HoldfastError(f"alpha must be positive, got {self.alpha}")
        if self.steps < 1:
            raise HoldfastError(f"steps must be at least 1, got {self.steps}")
        for name, known in (("norm", tuple(NORMS)), ("weighting", WEIGHTINGS)):
            value = getattr(self, name)
            if value not in known:
                raise HoldfastError(f"{name} must be one of {', '.join(known)}, got {value!r}{nearest(value, known)}")

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, *, seed: int = 0, ids: draws.Ids | None = None
    ) -> AttackResult:
        """Attack a batch and score it; success is the map of labelled pixels that are wrong."""
        adversarial = perturb_pixels(self, model, images, labels, seed=seed, ids=ids)
        with undisturbed(model) as quiet, torch.no_grad():
            predictions = pixel_logits(quiet, adversarial, labels).argmax(dim=1)
        record = {"attack": "pixel", **asdict(self), "seed": seed}
        return AttackResult(adversarial, predictions, (predictions != labels) & (labels != IGNORED), record)


def perturb_pixels(
    attack: PixelAttack,
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    seed: int = 0,
    ids: draws.Ids | None = None,
    mode: Mode = "eval",
) -> Tensor:
    """Adversarial images, (B, C, H, W), detached.

    Args:
        attack: the settings.
        model: takes images in [0,1] (`from_pixels`) and returns logits (B, classes, H, W); left exactly as it was.
        images: in [0,1].
        labels: int64 (B, H, W), 255 for ignored pixels.
        seed: of the random starts.
        ids: the images' names, which key their random starts; without them, their places in the batch.
        mode: ``eval`` attacks the model in evaluation mode, ``keep`` in the mode it is in.
    """
    check_images(images)
    names = draws.image_ids(ids, len(images))
    norm = NORMS[attack.norm]
    with undisturbed(model, mode=mode) as quiet:
        images, labels = own(images, labels)
        adversarial = into_ball(attack, images, images + starting_point(attack, images, None, seed, names, 0))
        for step in range(1, attack.steps + 1):
            points = adversarial.detach().requires_grad_()
            logits = pixel_logits(quiet, points, labels)
            check_differentiable(logits)
            loss = pixel_attack_loss(logits, labels, wrong_weight=_wrong_weight(attack, step))
            (gradient,) = torch.autograd.grad(loss.sum(), points)
            adversarial = into_ball(attack, images, adversarial.add_(norm.step(gradient), alpha=attack.alpha))
    return adversarial


def pixel_attack_loss(logits: Tensor, labels: Tensor, *, wrong_weight: float | None) -> Tensor:
    """Mean weighted cross-entropy of every image's labelled pixels, (B,).

    SegPGD, Eq. 4: 1 − ``wrong_weight`` for pixels that are right, ``wrong_weight`` for the others; None weighs all 1.
    """
    each = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="none")  # B H W
    if wrong_weight is not None:
        right = logits.detach().argmax(dim=1) == labels
        each = torch.where(right, 1 - wrong_weight, wrong_weight) * each
    return each.flatten(1).sum(dim=1) / (labels != IGNORED).flatten(1).sum(dim=1).clamp_min(1)


def _wrong_weight(attack: PixelAttack, step: int) -> float | None:
    return (step - 1) / (2 * attack.steps) if attack.weighting == "segpgd" else None


def pixel_logits(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Finite logits of every pixel, in single precision at least, that fit the labels."""
    logits = model(images)
    if not isinstance(logits, Tensor) or logits.ndim != 4 or logits.shape[-2:] != images.shape[-2:]:
        came = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise HoldfastError(f"the model must return logits (images, classes, height, width), got {came}")
    if labels.shape != (len(images), *images.shape[-2:]):
        raise HoldfastError(
            f"labels must be maps of shape {(len(images), *images.shape[-2:])}, got {tuple(labels.shape)}"
        )
    known = labels[labels != IGNORED]
    if known.numel() and not 0 <= int(known.min()) <= int(known.max()) < logits.shape[1]:
        raise HoldfastError(
            f"labels must lie in 0…{logits.shape[1] - 1} or be {IGNORED}, got {int(known.min())}…{int(known.max())}"
        )
    if not torch.isfinite(logits).all():
        raise HoldfastError("the model must return finite logits, got NaN or infinity")
    return single_or_double(logits)


# the house's radius (RVT's PGD of classifiers) and SegPGD's own; steps and step length of the latter as recalled
PIXEL_PRESETS: dict[str, PixelAttack] = {
    "pgd5": PixelAttack(eps=1 / 255, alpha=0.5 / 255, steps=5, weighting="equal"),
    "segpgd5": PixelAttack(eps=1 / 255, alpha=0.5 / 255, steps=5),
    "pgd20": PixelAttack(eps=8 / 255, alpha=0.01, steps=20, weighting="equal"),
    "segpgd20": PixelAttack(eps=8 / 255, alpha=0.01, steps=20),
}
