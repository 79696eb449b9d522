"""Robust objectives: the task's loss plus the loss terms of the papers, in any combination and any training loop.

objective = RobustObjective(terms=[FeatureAlignment(corruptor_for(model, (224, 224))), AttentionDiversification()])
loss = objective(model, images, targets)
loss.total.backward()
optimizer.step(); optimizer.zero_grad()
objective.update()
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, Literal, NamedTuple

import torch
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models.detection.generalized_rcnn import GeneralizedRCNN

from holdfast.attacks.criteria import MISCLASSIFICATION, Criterion
from holdfast.attention import Seen, watch
from holdfast.errors import HoldfastError, nearest
from holdfast.methods.adl import adl_term
from holdfast.methods.adversarial import adversarial_term
from holdfast.methods.afat import afat_term
from holdfast.methods.augmix import augmix_term
from holdfast.methods.distillation import distillation_term
from holdfast.methods.loss_terms import Context, ForwardPass, ImageSpace, Term
from holdfast.methods.noise2net import noise2net_term
from holdfast.methods.objective import Loss, TaskLoss
from holdfast.methods.patch_augment import patches_term
from holdfast.methods.segmentation_loss import pixel_cross_entropy
from holdfast.methods.trades import mart_term, trades_term
from holdfast.registry import Registry, add_row
from holdfast.runtime.device import unwrap_model


class RobustObjective:
    """The task's loss on clean images plus any terms: AFAT, ADL, patch-wise augmentation, … or your own.

    All terms share one joint batch, the views that they add first and the clean images last; with AFAT it is
    [corrupted ; clean]. Terms prepare their views and add their losses in order.

    Args:
        terms: see ``holdfast.methods.loss_terms.Term``.
        mean: mean of the images' normalisation.
        std: standard deviation of the images' normalisation.
        task_loss: loss of the model's output and the targets.
        goal: the task's criterion for attacks.
    """

    def __init__(
        self,
        terms: Sequence[Term] = (),
        *,
        mean: Sequence[float] = IMAGENET_DEFAULT_MEAN,
        std: Sequence[float] = IMAGENET_DEFAULT_STD,
        task_loss: TaskLoss = F.cross_entropy,
        goal: Criterion = MISCLASSIFICATION,
    ) -> None:
        self.terms = tuple(terms)
        self.setting = ImageSpace(torch.tensor(mean).view(-1, 1, 1), torch.tensor(std).view(-1, 1, 1), task_loss, goal)
        owned = [name for term in self.terms for name in term.modules]
        if len(set(owned)) < len(owned):
            raise HoldfastError(f"terms must own modules of different names, got {', '.join(sorted(owned))}")

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """The modules that terms own and update, such as AFAT's corruption model."""
        return {name: module for term in self.terms for name, module in term.modules.items()}

    @property
    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """The optimizers of the terms' modules."""
        return {name: optimizer for term in self.terms for name, optimizer in term.optimizers.items()}

    def update(self) -> Mapping[str, Tensor]:
        """Update the terms' modules; call it once per step, after backward."""
        return {name: figure for term in self.terms for name, figure in term.update().items()}

    def __call__(self, model: nn.Module, images: Tensor, targets: Any) -> Loss:
        """The loss of a batch of normalised images with hard or soft targets."""
        forward = ForwardPass(model, targets, self.setting, self.terms)
        batch = forward.show(images)
        with watch(model) if any(term.watches for term in self.terms) else nullcontext(Seen()) as seen:
            outputs = model(batch)
        forward.look(outputs, seen)
        clean = self.setting.task_loss(forward.outputs, targets)
        total = clean * prod(term.clean_weight for term in self.terms)
        parts = {"cross_entropy": clean.detach()}
        for term in self.terms:
            if (loss := term.loss(forward)) is not None:
                total, parts = total + loss.total, {**parts, **loss.parts}
        return Loss(total, parts)


class RobustDetection(RobustObjective):
    """The robust objective of a torchvision-style detector: its losses, plus terms on its backbone.

    Ours; no paper has it. Terms see the images as the backbone does, scaled, normalised and padded; the heads see the
    feature maps of the clean images only, so each view costs one more pass through the backbone.
    """

    def __call__(self, model: nn.Module, images: Any, targets: Any) -> Loss:
        """Images as a list or a batch of [0,1] pixels, targets as a list of boxes, labels and masks."""
        forward = ForwardPass(model, targets, self.setting, self.terms)
        backbone: Any = unwrap_model(model).backbone
        shown = backbone.register_forward_pre_hook(lambda _, args: (forward.show(args[0]),))
        heads = backbone.register_forward_hook(lambda _, args, maps: {n: forward.clean(m) for n, m in maps.items()})
        try:
            with watch(model) if any(term.watches for term in self.terms) else nullcontext(Seen()) as seen:
                losses = model(images, targets)
        finally:
            shown.remove()
            heads.remove()
        forward.look(losses, seen)
        total = sum(losses.values()) * prod(term.clean_weight for term in self.terms)
        parts = {name: loss.detach() for name, loss in losses.items()}
        for term in self.terms:
            if (loss := term.loss(forward)) is not None:
                total, parts = total + loss.total, {**parts, **loss.parts}
        return Loss(total, parts)


class TermEntry(NamedTuple):
    """The function that builds a term from a recipe's option, and a one-line description."""

    build: Callable[[Any, Context], Term]
    line: str


_SHIPPED: dict[str, TermEntry] = {  # in the order in which they prepare views and add losses: augmentations come first
    "noise2net_share": TermEntry(noise2net_term, "a share of the batch distorted by random networks (DeepAugment)"),
    "patches": TermEntry(patches_term, "a second cross-entropy on patch-wise augmented images (RVT)"),
    "augmix": TermEntry(augmix_term, "AugMix views and the Jensen-Shannon divergence of the predictions (AugMix)"),
    "afat": TermEntry(afat_term, "feature alignment under patch corruption chosen by a corruption model (AFAT, RSPC)"),
    "adl": TermEntry(adl_term, "attention diversification loss against overfocusing (TAP+ADL)"),
    "adversarial": TermEntry(adversarial_term, "cross-entropy on FGSM or PGD images"),
    "trades": TermEntry(trades_term, "clean cross-entropy and the divergence that an attack can make (TRADES)"),
    "mart": TermEntry(mart_term, "attacked images, with more weight where the clean prediction is wrong (MART)"),
    "distillation": TermEntry(
        distillation_term, "a teacher's predictions as targets, hard or soft (DeiT; FAN, Table 2)"
    ),
}
TERMS: Registry[str, TermEntry] = Registry(_SHIPPED, register="holdfast.methods.register_term")


def register_term(name: str, build: Callable[[Any, Context], Term], line: str) -> None:
    """Register a term of objectives: ``build(options, context)`` makes it from a recipe's option of that name."""
    add_row(TERMS, name, TermEntry(build, line), what="term")


ON_DETECTORS = ("noise2net_share", "afat", "adl")


def check_terms(names: Sequence[str]) -> None:
    """Raise an error for terms that need predictions in training, which detectors do not return."""
    if other := [name for name in names if name not in ON_DETECTORS]:
        raise HoldfastError(
            f"objective.options of a detector must be among {', '.join(ON_DETECTORS)}, got {other[0]!r}: it needs "
            "predictions, and a detector in training returns only losses"
        )


def robust_objective(
    *,
    model: nn.Module,
    size: tuple[int, int] | None,
    mean: Sequence[float],
    std: Sequence[float],
    task_loss: TaskLoss = F.cross_entropy,
    goal: Criterion = MISCLASSIFICATION,
    class_weights: Sequence[float] | None = None,
    divisor: Literal["all", "labelled"] | None = None,
    classes: Sequence[str] = (),
    **options: Any,
) -> RobustObjective:
    """A robust objective from a recipe's options, one per term; null omits a term.

    ``class_weights`` and ``divisor`` are for segmentation, see
    `holdfast.methods.segmentation_loss.pixel_cross_entropy`.
    """
    for name in options:
        if name not in TERMS:
            hint = nearest(name, TERMS) or f"; it takes {', '.join(TERMS)}"
            raise HoldfastError(f"unknown option {name!r} of objective 'robust'{hint}")
    if divisor is not None and goal is MISCLASSIFICATION:
        raise HoldfastError(
            f"divisor of objective 'robust' is for label maps of pixels alone, got {divisor!r}; leave it out"
        )
    if class_weights is not None or divisor is not None:
        task_loss = partial(pixel_cross_entropy, class_weights=class_weights, divisor=divisor or "labelled")
    context = Context(model, size, mean, std, classes)
    asked = [name for name in TERMS if options.get(name) is not None]
    if isinstance(model, GeneralizedRCNN):
        check_terms(asked)
        context = replace(context, mean=model.transform.image_mean, std=model.transform.image_std)
        terms = [TERMS[name].build(options[name], context) for name in asked]
        return RobustDetection(terms, mean=context.mean, std=context.std)
    terms = [TERMS[name].build(options[name], context) for name in asked]
    return RobustObjective(terms, mean=mean, std=std, task_loss=task_loss, goal=goal)
