"""Learned occlusion (``occlusion-learned``): fit AFAT's corruption model to a frozen classifier.

AFAT trains the corruption model together with the network; its Table 3 also attacks a plain network with one.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from holdfast.attacks.criteria import check_logits, cross_entropy
from holdfast.attacks.eval_mode import attack_mode, own_copies, single_or_double
from holdfast.attacks.occlusion import Fill, cover_of, cover_patches, pixel_model
from holdfast.attacks.patch_selection import check_grid
from holdfast.attacks.pixel_model import backbone, check_differentiable, check_images
from holdfast.attention import watch
from holdfast.errors import HoldfastError
from holdfast.models.corruption_model import Corruptor

Batches = Iterable[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class LearnedOcclusion:
    """Settings for fitting a corruption model to a classifier.

    Attributes:
        ratio: fraction of the patches to occlude.
        patch_size: side of a patch in pixels.
        objective: the loss that the corruption model maximises: the ``cross-entropy``, which needs only logits (AFAT's
            Table 6 compares the two), or the ``alignment`` loss (AFAT, Eq. 2), as in AFAT's training.
        epochs: passes over the images.
        lr: learning rate of Adam.
        fill: content of an occluded patch; see `Occlusion`.
    """

    ratio: float = 0.1
    patch_size: int = 16
    objective: Literal["cross-entropy", "alignment"] = "cross-entropy"
    epochs: int = 10
    lr: float = 3e-2
    fill: Fill = "normalised"

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise HoldfastError(f"objective must be one of {', '.join(OBJECTIVES)}, got {self.objective!r}")
        for name in ("patch_size", "epochs", "lr"):
            if not getattr(self, name) > 0:
                raise HoldfastError(f"{name} must be positive, got {getattr(self, name)}")


@dataclass(frozen=True)
class GeneratedOcclusion(LearnedOcclusion):
    """The same by alignment, as in AFAT's paper, and never scored on images that it was fitted to.

    Two corruption models are fitted, each to images of one half, and each is used for the other half.
    """

    objective: Literal["cross-entropy", "alignment"] = "alignment"


class CrossFitted(nn.Module):
    """Two corruption models, each for the images of the half that it was not fitted to.

    Args:
        models: fitted to the images of half 0 and of half 1.
        halves: of every image, by its id; see `halves_of`.
    """

    def __init__(self, models: Sequence[Corruptor], halves: Mapping[int | str, int]) -> None:
        super().__init__()
        self.models, self.halves = nn.ModuleList(models), halves

    def keep(self, images: Tensor, ratio: float, *, names: Sequence[int | str]) -> Tensor:
        """The mask of kept patches, (B, 1, rows, columns)."""
        first, second = (cast(Corruptor, model).keep(images, ratio) for model in self.models)
        use_first = torch.tensor([self.halves[name] == 1 for name in names], device=images.device)
        return torch.where(use_first.view(-1, 1, 1, 1), first, second)


def halves_of(ids: Sequence[int | str]) -> dict[int | str, int]:
    """Which half of a set each image belongs to, 0 or 1, whatever the order of the set: by checksums of the ids."""
    ordered = sorted(ids, key=lambda name: (zlib.crc32(str(name).encode()), str(name)))
    return {name: place % 2 for place, name in enumerate(ordered)}


@dataclass(frozen=True, eq=False)
class FittedCorruptor:
    """A fitted corruption model, the mean objective of each epoch, and the record of the fit."""

    corruptor: Corruptor
    objective: list[float]
    record: dict[str, Any]


def fit_corruptor(attack: LearnedOcclusion, model: nn.Module, batches: Batches, *, seed: int = 0) -> FittedCorruptor:
    """Fit a corruption model that maximises the objective of a frozen classifier, which is left unchanged.

    AFAT, Eq. 3, without the minimisation. ``batches`` yields (images in [0,1], labels) and is read once per epoch.
    Deviation: Adam, because the published SGD rate of 1e-4 is meant for hundreds of epochs of joint training.
    """
    corruptor: Corruptor | None = None
    history: list[float] = []
    with attack_mode(model) as victim:
        for epoch in range(attack.epochs):
            values = []
            for number, batch in enumerate(batches):
                images, labels = own_copies(*batch)
                check_images(images)
                if corruptor is None:
                    corruptor = _new_corruptor(attack, images, seed)
                    optimiser = torch.optim.Adam(corruptor.parameters(), lr=attack.lr, maximize=True)
                names: list[int | str] = [f"{epoch}/{number}/{place}" for place in range(len(images))]
                covered = _cover(attack, victim, corruptor, images, seed=seed, names=names)
                values.append(_ascend(OBJECTIVES[attack.objective](victim, covered, images, labels), optimiser))
            history.append(sum(values) / max(len(values), 1))
    if corruptor is None:
        raise HoldfastError("batches must yield at least one batch of (images, labels) in every epoch, got none")
    record = {"attack": "occlusion-learned", **asdict(attack), "batches": len(values), "seed": seed}
    return FittedCorruptor(corruptor.requires_grad_(False), history, record)


def raised_cross_entropy(model: nn.Module, covered: Tensor, images: Tensor, labels: Tensor) -> Tensor:
    """The classifier's loss on the occluded images."""
    logits = model(covered)
    check_logits(logits, labels)
    return cross_entropy(single_or_double(logits), labels).mean()


def raised_alignment(model: nn.Module, covered: Tensor, images: Tensor, labels: Tensor) -> Tensor:
    """The alignment loss between the blocks' features of occluded and clean images (AFAT, Eq. 2)."""
    with watch(backbone(model)) as seen:
        with torch.no_grad():
            check_logits(model(images), labels)
        clean = list(seen.features)
        check_logits(model(covered), labels)
    errors = [nn.functional.mse_loss(a, b) for a, b in zip(seen.features, clean, strict=True)]
    return torch.stack(errors).sum() / (len(errors) + 1e-4)  # L + 1e-4 as in the released code


Objective = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]
OBJECTIVES: dict[str, Objective] = {"cross-entropy": raised_cross_entropy, "alignment": raised_alignment}


def _ascend(value: Tensor, optimiser: torch.optim.Optimizer) -> float:
    check_differentiable(value)
    weights = optimiser.param_groups[0]["params"]
    for weight, gradient in zip(weights, torch.autograd.grad(value, weights), strict=True):
        weight.grad = gradient
    optimiser.step()
    return value.item()


def _cover(
    attack: LearnedOcclusion,
    model: nn.Module,
    corruptor: Corruptor,
    images: Tensor,
    *,
    seed: int,
    names: list[int | str],
) -> Tensor:
    keep = corruptor.keep(pixel_model(model).normalise(images), attack.ratio)
    cover = cover_of(attack.fill, model, images, seed=seed, names=names, purpose="fit")
    return cover_patches(images, keep, cover)


def _new_corruptor(attack: LearnedOcclusion, images: Tensor, seed: int) -> Corruptor:
    grid = check_grid(images, attack.patch_size)
    with torch.random.fork_rng(devices=[]):  # torch initialises weights from its global generator
        torch.manual_seed(seed)
        return Corruptor(grid, patch_size=attack.patch_size, channels=images.shape[1]).to(images.device)
