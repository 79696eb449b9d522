"""Robust objectives: cross-entropy plus what the papers add, in any combination and in anybody's loop.

objective = RobustObjective(adl=AttentionDiversification(), afat=FeatureAlignment(corruptor_for(model, (224, 224))))
loss = objective(model, images, targets)
loss.total.backward()
optimizer.step(); optimizer.zero_grad()
objective.update()
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.attacks import GradientAttack, PixelModel, perturb
from holdfast.attacks.goal import ONE_CLASS, Goal
from holdfast.attention import AttentionHandle, Seen, watch
from holdfast.errors import HoldfastError
from holdfast.methods.adl import AttentionDiversification
from holdfast.methods.afat import AfatSettings, FeatureAlignment, corruptor_for
from holdfast.methods.noise2net import noise2net
from holdfast.methods.objective import Loss, TaskLoss
from holdfast.methods.patch_augment import Crops, patch_augment


@dataclass(frozen=True)
class PatchAugmentation:
    """RVT's second cross-entropy, on patch-wise augmented images.

    Attributes:
        weight: factor in the objective.
        patch_size: pixels per patch side.
        probability: of each operation, on each patch or (released crops) on all of them.
        crops: ``released``: one coin for all patches and whole pixels, or ``per-patch``: a coin each and any size.
        discard_gradient: as RVT and RSPC released it: the augmented pass moves BatchNorm's statistics and nothing else;
            with AFAT it is a joint batch too.
    """

    weight: float = 1.0
    patch_size: int = 16
    probability: float = 0.1
    crops: Crops = "released"
    discard_gradient: bool = False

    def __post_init__(self) -> None:
        if self.crops not in Crops.__args__:  # type: ignore[attr-defined]
            raise HoldfastError(f"crops of patches must be 'released' or 'per-patch', got {self.crops!r}")


@dataclass(frozen=True)
class AdversarialTraining:
    """Cross-entropy on adversarial images instead of, or beside, the clean ones.

    Attributes:
        attack: the inner maximisation, in units of [0, 1] pixels.
        weight: of the adversarial images.
        clean_weight: of the clean images; 0 trains on adversarial ones alone (Madry et al. 2018).
    """

    attack: GradientAttack = field(default_factory=lambda: GradientAttack(eps=1 / 255, alpha=0.5 / 255, steps=5))
    weight: float = 1.0
    clean_weight: float = 0.0


class RobustObjective:
    """Cross-entropy, and any of ADL, AFAT, patch-wise augmentation, adversarial training and Noise2Net's images.

    With AFAT the model sees one joint batch [corrupted ; clean] and ADL looks at the clean half. ``mean`` and ``std``
    are those that the images were normalised with.
    """

    def __init__(
        self,
        *,
        adl: AttentionDiversification | None = None,
        afat: FeatureAlignment | None = None,
        patches: PatchAugmentation | None = None,
        adversarial: AdversarialTraining | None = None,
        noise2net_share: float = 0.0,
        mean: Sequence[float] = IMAGENET_DEFAULT_MEAN,
        std: Sequence[float] = IMAGENET_DEFAULT_STD,
        task_loss: TaskLoss = F.cross_entropy,
        goal: Goal = ONE_CLASS,
    ) -> None:
        if not 0 <= noise2net_share <= 1:
            raise HoldfastError(f"noise2net_share must lie between 0 and 1, got {noise2net_share}")
        self.adl, self.afat, self.patches, self.adversarial = adl, afat, patches, adversarial
        self.noise2net_share, self.task_loss, self.goal = noise2net_share, task_loss, goal
        self.mean, self.std = torch.tensor(mean).view(-1, 1, 1), torch.tensor(std).view(-1, 1, 1)

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """AFAT's corruption model, if it plays."""
        return self.afat.modules if self.afat else {}

    @property
    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """The corruption model's optimizer, if it plays."""
        return self.afat.optimizers if self.afat else {}

    def update(self) -> Mapping[str, Tensor]:
        """Move the corruption model; call it once per step, after backward."""
        return self.afat.update() if self.afat else {}

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Loss:
        """The loss of a batch of normalised images with hard or soft targets."""
        if self.noise2net_share > 0:
            images = noise2net(images, share=self.noise2net_share, **self._range())
        augmented = None if self.patches is None else self._patch_loss(model, images, targets)  # first, as released
        batch = images if self.afat is None else torch.cat([self.afat.corrupt(images), images])
        with watch(model) if self.adl or self.afat else nullcontext(Seen()) as seen:
            logits = model(batch)
        clean = self.task_loss(logits[len(batch) - len(images) :], targets)
        total = clean * (self.adversarial.clean_weight if self.adversarial else 1.0)
        parts = {"cross_entropy": clean.detach()}
        if self.afat is not None:
            if self.afat.settings.selection == "cross-entropy":
                self.afat.ascend_cross_entropy(self.task_loss(logits[: len(images)], targets))
            loss, figures = self.afat.align(seen.features)
            total, parts = total + self.afat.settings.weight * loss, parts | figures
        if self.adl is not None:
            handles = [_clean_half(h) for h in seen.attention] if self.afat else seen.attention
            loss, figures = self.adl(handles)
            total, parts = total + self.adl.weight * loss, parts | figures
        if self.patches is not None and augmented is not None:
            total, parts = total + self.patches.weight * augmented, parts | {"patch_cross_entropy": augmented.detach()}
        if self.adversarial is not None:
            loss = self._adversarial_loss(model, images, targets)
            total, parts = total + self.adversarial.weight * loss, parts | {"adversarial_cross_entropy": loss.detach()}
        if self.afat is not None:
            self.afat.listen(total)
        return Loss(total, parts)

    def _range(self) -> dict[str, Tensor]:
        """The values of 0 and 1 in the images' space."""
        return {"low": -self.mean / self.std, "high": (1 - self.mean) / self.std}

    def _patch_loss(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        settings = self.patches or PatchAugmentation()
        augmented = patch_augment(
            images,
            patch_size=settings.patch_size,
            probability=settings.probability,
            crops=settings.crops,
            **self._range(),
        )
        if not settings.discard_gradient:
            return self.task_loss(model(augmented), targets)
        with torch.no_grad():  # RSPC occludes these images as well: BatchNorm sees both halves
            batch = augmented if self.afat is None else torch.cat([self.afat.corrupt(augmented), augmented])
            return self.task_loss(model(batch)[-len(images) :], targets)

    def _adversarial_loss(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        settings = self.adversarial or AdversarialTraining()
        mean, std = self.mean.to(images), self.std.to(images)
        pixels = (images * std + mean).clamp(0, 1)
        wrapped = PixelModel(model, mean=self.mean.flatten().tolist(), std=self.std.flatten().tolist()).to(
            images.device
        )
        seed = int(torch.randint(2**31, ()))  # the loop's own generator: another start in every step
        adversarial = perturb(settings.attack, wrapped, pixels, targets, seed=seed, goal=self.goal)
        return self.task_loss(model((adversarial - mean) / std), targets)


def _clean_half(handle: AttentionHandle) -> AttentionHandle:
    """The attention of the clean images of a joint batch [corrupted ; clean]."""
    half = len(handle.q) // 2
    bias = handle.bias[half:] if handle.bias is not None and len(handle.bias) == len(handle.q) else handle.bias
    return replace(handle, q=handle.q[half:], k=handle.k[half:], bias=bias)


def robust_objective(
    *,
    model: nn.Module,
    size: tuple[int, int],
    mean: Sequence[float],
    std: Sequence[float],
    adl: Mapping[str, Any] | None = None,
    afat: Mapping[str, Any] | None = None,
    patches: Mapping[str, Any] | None = None,
    adversarial: Mapping[str, Any] | None = None,
    noise2net_share: float = 0.0,
    task_loss: TaskLoss = F.cross_entropy,
    goal: Goal = ONE_CLASS,
) -> RobustObjective:
    """A robust objective from a recipe's options; AFAT's corruption model gets the grid of the model."""
    alignment = None
    if afat is not None:
        settings = _settings(AfatSettings, "afat", afat)
        alignment = FeatureAlignment(corruptor_for(model, size), settings, mean=mean, std=std)
    attack = dict(adversarial or {})
    weights = {name: attack.pop(name) for name in ("weight", "clean_weight") if name in attack}
    return RobustObjective(
        adl=None if adl is None else _settings(AttentionDiversification, "adl", adl),
        afat=alignment,
        patches=None if patches is None else _settings(PatchAugmentation, "patches", patches),
        adversarial=None
        if adversarial is None
        else AdversarialTraining(attack=_settings(GradientAttack, "adversarial", attack), **weights),
        noise2net_share=noise2net_share,
        mean=mean,
        std=std,
        task_loss=task_loss,
        goal=goal,
    )


def _settings(kind: type[Any], name: str, options: Mapping[str, Any]) -> Any:
    try:
        return kind(**options)
    except TypeError as error:
        raise HoldfastError(f"options of {name!r} cannot be understood: {error}") from error
