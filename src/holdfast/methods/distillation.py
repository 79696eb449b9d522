"""Knowledge distillation: a teacher's predictions as additional targets, hard (classes) or soft (probabilities).

After DeiT (Touvron et al., ICML 2021, Sec. 3), the form behind FAN's Table 2. Ours has no distillation token: one head
learns from both targets, so any backbone can be a student.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from timm.data import resolve_data_config
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.data.source import places_by_name
from holdfast.errors import HoldfastError
from holdfast.methods.loss_terms import Context, ForwardPass, Term, from_options
from holdfast.methods.objective import Loss
from holdfast.models.factory import load_model

Kind = Literal["hard", "soft"]
WEIGHTS = {"hard": 0.5, "soft": 0.1}  # as published


def hard_distillation(student: Tensor, teacher: Tensor) -> Tensor:
    """Cross-entropy with the teacher's predicted classes (DeiT, Eq. 3)."""
    return F.cross_entropy(student, teacher.argmax(dim=1))


def soft_distillation(student: Tensor, teacher: Tensor, *, temperature: float = 3.0) -> Tensor:
    """τ² · KL(teacher ‖ student) of the probabilities at temperature τ, mean over images (DeiT, Eq. 2; Hinton 2015)."""
    # τ² undoes the 1/τ² by which the temperature shrinks the gradient, so that α means the same for every τ
    ours, theirs = (F.log_softmax(logits / temperature, dim=1) for logits in (student, teacher))
    return temperature**2 * F.kl_div(ours, theirs, reduction="none", log_target=True).sum(dim=1).mean()


@dataclass(frozen=True, eq=False)
class Distillation(Term):
    """(1 − α) · the task's loss + α · distillation.

    Attributes:
        teacher: any timm-style classifier; it is frozen, in evaluation mode, and gets the clean images of the step in
            its own size and normalisation.
        kind: ``hard`` or ``soft``.
        weight: α; None for the published value, 0.5 for hard and 0.1 for soft.
        temperature: τ of the soft form.
        order: the teacher's index of each of the student's classes; None if the order is the same.
    """

    teacher: nn.Module
    kind: Kind = "hard"
    weight: float | None = None
    temperature: float = 3.0
    order: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.kind not in WEIGHTS:
            raise HoldfastError(f"kind of distillation must be 'hard' or 'soft', got {self.kind!r}")
        if not 0 <= self.alpha <= 1:
            raise HoldfastError(f"weight of distillation must lie between 0 and 1, got {self.weight}")
        if self.temperature <= 0:
            raise HoldfastError(f"temperature of distillation must be positive, got {self.temperature}")
        self.teacher.eval().requires_grad_(False)

    @property
    def alpha(self) -> float:
        """The weight in use, given or published."""
        return WEIGHTS[self.kind] if self.weight is None else self.weight

    @property
    def clean_weight(self) -> float:
        """The factor 1 − α of the task's loss."""
        return 1 - self.alpha

    def loss(self, forward: ForwardPass) -> Loss:
        """The weighted distillation loss, and the rate of agreement between student and teacher."""
        answers = self.answers(forward.images, mean=forward.setting.mean, std=forward.setting.std)
        check_classes(teacher=answers.shape[1], student=forward.outputs.shape[1])
        if self.kind == "hard":
            loss = hard_distillation(forward.outputs, answers)
        else:
            loss = soft_distillation(forward.outputs, answers, temperature=self.temperature)
        agreement = (forward.outputs.argmax(dim=1) == answers.argmax(dim=1)).float().mean()
        return Loss(self.alpha * loss, {"distillation": loss.detach(), "teacher_agreement": agreement})

    @torch.no_grad()
    def answers(self, images: Tensor, *, mean: Tensor, std: Tensor) -> Tensor:
        """The teacher's logits for images that were normalised with ``mean`` and ``std``, (C, 1, 1)."""
        wanted = resolve_data_config(model=self.teacher)
        pixels = images * std.to(images) + mean.to(images)
        if tuple(images.shape[-2:]) != tuple(wanted["input_size"][-2:]):
            size = list(wanted["input_size"][-2:])
            pixels = F.interpolate(pixels, size, mode="bicubic", antialias=True, align_corners=False)
        own_mean, own_std = (pixels.new_tensor(wanted[name]).view(-1, 1, 1) for name in ("mean", "std"))
        logits = self.teacher.to(images.device)((pixels - own_mean) / own_std)
        return logits if self.order is None else logits[:, list(self.order)]


def check_classes(*, teacher: int, student: int) -> None:
    """Raise an error if teacher and student have different numbers of classes."""
    if teacher != student:
        raise HoldfastError(f"teacher of distillation must have the model's {student} classes, got one with {teacher}")


def distillation_term(options: Any, context: Context) -> Distillation:
    """Build the term from a recipe's option ``distillation``; ``teacher`` is a model spec such as ``timm:NAME``."""
    teacher = options.get("teacher") if isinstance(options, dict) else None
    if not isinstance(teacher, str):
        raise HoldfastError(
            f"distillation.teacher must name a model (timm:NAME, timm:NAME@FILE, run:DIR), got {teacher}"
        )
    loaded = load_model(teacher)
    order = _order(loaded.classes, context.classes)
    term = from_options(Distillation, "distillation", {**options, "teacher": loaded.model}, order=order)
    known: list[Any] = [getattr(model, "num_classes", None) for model in (loaded.model, context.model)]
    if None not in known:
        check_classes(teacher=known[0], student=known[1])
    return term


def _order(theirs: Sequence[str] | None, ours: Sequence[str]) -> list[int] | None:
    """Indices of our classes among the teacher's, if both have the same names in another order."""
    if not theirs or len(theirs) != len(ours):
        return None
    return places_by_name(ours, theirs)
