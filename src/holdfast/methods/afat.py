"""AFAT: align features against a corruption model that looks for the patches whose occlusion hurts most.

    x̂ = clamp(x ⊙ M + δ ⊙ (1 − M))                            Eq. 1, `occlude`; M is the corruption model's choice
    L_align = mean over blocks of mean (f_l(x̂) − f_l(x))²     Eq. 2, `alignment`
    min over the classifier, max over the corruption model of  CE(F(x), y) + λ L_align     Eq. 3, `FeatureAlignment`

Two players, one backward pass: the classifier descends, and the corruption model gets the same gradient, scaled,
clamped and with its sign changed. Published later as RSPC; as released where paper and code differ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor, nn
from torchvision.models.detection.generalized_rcnn import GeneralizedRCNN

from holdfast.attacks.patch_selection import without_most_attended
from holdfast.errors import HoldfastError
from holdfast.methods.loss_terms import Context, ForwardPass, Term, Views, from_options
from holdfast.methods.objective import Loss
from holdfast.models.corruption_model import ConvCorruptor, Corruptor, in_pixels, select_lowest

Selection = Literal["adversarial", "random", "cross-entropy", "attention"]
Occlusion = Literal["noise", "drop"]
LEARNT = ("adversarial", "cross-entropy")  # selections in which the corruption model plays
LARGEST_GRID = 1024  # patches up to which the published corruption model is taken: its matrix then has 1 M weights


def occlude(images: Tensor, keep: Tensor, noise: Tensor, *, low: Tensor | float, high: Tensor | float) -> Tensor:
    """Replace the patches that are not kept by noise: clamp(x ⊙ M + δ ⊙ (1 − M), low, high).

    AFAT, Eq. 1. ``keep`` is (B, 1, rows, columns), 1 = keep, and is enlarged to the images' size; ``low`` and ``high``
    are the values that 0 and 1 have in the space of ``images``.
    """
    mask = in_pixels(keep, images)
    bounds = [torch.as_tensor(bound, dtype=images.dtype, device=images.device) for bound in (low, high)]
    return torch.clamp(images * mask + noise * (1 - mask), min=bounds[0], max=bounds[1])


def alignment(corrupted: Sequence[Tensor], clean: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """How far the blocks' features moved: the blocks' mean squared errors, averaged; and the errors.

    AFAT, Eq. 2; as released: the element mean rather than the squared norm, a denominator of L + 1e-4, and neither side
    is detached.
    """
    if len(corrupted) != len(clean) or not clean:
        raise HoldfastError(f"alignment needs the same blocks twice, got {len(corrupted)} and {len(clean)} features")
    errors = [nn.functional.mse_loss(a, b) for a, b in zip(corrupted, clean, strict=True)]
    return torch.stack(errors).sum() / (len(errors) + 1e-4), errors


@dataclass(frozen=True)
class AfatSettings:
    """How AFAT plays; the defaults are the release's.

    Attributes:
        weight: λ of the alignment loss. 0.005 belongs to 300 epochs of ImageNet.
        ratio: ρ, the share of patches that is occluded.
        selection: who chooses them: the corruption model by alignment, chance, or the corruption model by the
            cross-entropy of the occluded images (the ablations of the paper's Tables 4 and 6; ours, none was released);
            or ``attention``: those that receive the most of it (ours; docs/afat.md says why).
        occlusion: ``noise`` is uniform in [0, 1) of the normalised space, ``drop`` the mean colour.
        grad_scale: what multiplies the corruption model's gradients before they are clamped, in any precision. The
            release never unscales the gradients of its mixed precision; without this factor the model hardly moves.
        lr: of the corruption model's SGD (momentum 0.9, Nesterov), constant.
        weight_decay: of the same; it still shrinks the weights that the gradient makes grow.
        clip: norm to which its gradient is clipped.
        corruptor: which corruption model: ``published``, or ``conv`` (ours) for images of any size; None takes ``conv``
            from more than 1,024 patches on, and where images differ in size.
    """

    weight: float = 0.005
    ratio: float = 0.1
    selection: Selection = "adversarial"
    occlusion: Occlusion = "noise"
    grad_scale: float = 65536.0
    lr: float = 1e-4
    weight_decay: float = 0.05
    clip: float = 5.0
    corruptor: Literal["published", "conv"] | None = None

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise HoldfastError(f"weight of AFAT must not be negative, got {self.weight}")
        if not 0 < self.ratio < 1:
            raise HoldfastError(f"ratio of AFAT must lie between 0 and 1, got {self.ratio}")
        for name, known in (("selection", Selection), ("occlusion", Occlusion)):
            if getattr(self, name) not in known.__args__:  # type: ignore[attr-defined]
                choices = ", ".join(known.__args__)  # type: ignore[attr-defined]
                raise HoldfastError(f"{name} of AFAT must be one of {choices}, got {getattr(self, name)!r}")
        if self.corruptor not in (None, "published", "conv"):
            raise HoldfastError(f"corruptor of AFAT must be one of published, conv, got {self.corruptor!r}")


class FeatureAlignment(Term):
    """Occludes the images of a step, measures how far every block's features move, and moves the corruption model."""

    watches: ClassVar[bool] = True

    def __init__(
        self,
        corruptor: Corruptor | ConvCorruptor,
        settings: AfatSettings | None = None,
        *,
        mean: Sequence[float] = IMAGENET_DEFAULT_MEAN,
        std: Sequence[float] = IMAGENET_DEFAULT_STD,
    ) -> None:
        self.settings = settings or AfatSettings()
        self.corruptor = corruptor
        self.low = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)]).view(-1, 1, 1)
        self.high = torch.tensor([(1 - m) / s for m, s in zip(mean, std, strict=True)]).view(-1, 1, 1)
        self.optimizer = self._optimizer() if self.settings.selection in LEARNT else None
        self._last: tuple[Tensor, Tensor] | None = None  # normalised images and what was kept of them
        self._blocked = False  # True while the alignment loss must not reach the corruption model
        self._loss_scale: Tensor | float = 1.0  # of the backward pass that is running
        self._passes = 0  # backward passes since the last update

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """The corruption model, if it chooses."""
        return {"corruptor": self.corruptor} if self.optimizer else {}

    @property
    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """Its own."""
        return {"corruptor": self.optimizer} if self.optimizer else {}

    def prepare(self, images: Tensor, forward: ForwardPass) -> Views:
        """One joint batch [corrupted ; clean]."""
        return (self.corrupt(images, forward.model), images)

    def loss(self, forward: ForwardPass) -> Loss:
        """λ · alignment. Its gradient reaches the classifier as it is, the corruption model through ``_rescale``."""
        if self.settings.selection == "cross-entropy":
            occluded = forward.setting.task_loss(forward.outputs_of(self), forward.targets)
            self._ascend_cross_entropy(occluded)
        pairs = [forward.pair(self, feature) for feature in forward.features]
        loss, errors = alignment([corrupted for corrupted, _ in pairs], [clean for _, clean in pairs])
        weighted = self.settings.weight * loss
        if weighted.requires_grad and self.optimizer:
            weighted.register_hook(self._note_scale)
        return Loss(
            weighted, {"alignment": loss.detach(), **{f"alignment_{i}": e.detach() for i, e in enumerate(errors)}}
        )

    def corrupt(self, images: Tensor, model: nn.Module | None = None) -> Tensor:
        """Normalised images with the chosen patches occluded (AFAT, Eq. 1); gradients reach the corruption model.

        ``model`` is whose attention chooses, where it is to.
        """
        self._blocked, self._loss_scale = False, 1.0
        keep = self._keep(images, model)
        noise = torch.rand_like(images) if self.settings.occlusion == "noise" else torch.zeros_like(images)
        self._last = (images.detach(), keep.detach())
        return occlude(images, keep, noise, low=self.low, high=self.high)

    def _keep(self, images: Tensor, model: nn.Module | None) -> Tensor:
        if self.settings.selection == "attention":
            if model is None:
                raise HoldfastError("selection 'attention' of AFAT needs the model beside the images, got none")
            return without_most_attended(model, images, self.settings.ratio)
        rows, columns = self.corruptor.grid_of(images)
        if self.settings.selection == "random":
            scores = torch.rand(len(images), rows * columns, device=images.device)
            return select_lowest(scores, self.settings.ratio).unflatten(1, (1, rows, columns))
        keep = self.corruptor.keep(images, self.settings.ratio)
        if keep.requires_grad:
            keep.register_hook(self._rescale)
        return keep

    def _rescale(self, gradient: Tensor) -> Tensor:
        """The mask's gradient, before it is clamped, with our scale instead of the loop's."""
        return torch.zeros_like(gradient) if self._blocked else gradient * (self.settings.grad_scale / self._loss_scale)

    def _note_scale(self, gradient: Tensor) -> None:
        """Whatever a loop multiplies the total loss by (fp16's scaler): it arrives here before it reaches the mask."""
        self._loss_scale, self._passes = gradient, self._passes + 1

    def _ascend_cross_entropy(self, loss: Tensor) -> None:
        """Give the corruption model the gradient of another loss, and let it have none from the alignment."""
        parameters = list(self.corruptor.parameters())
        for parameter, gradient in zip(
            parameters, torch.autograd.grad(loss, parameters, retain_graph=True), strict=True
        ):
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        self._blocked = True

    def update(self) -> dict[str, Tensor]:
        """Move the corruption model uphill; call it once per step, after backward."""
        if self.optimizer is None:
            return {}
        parameters = list(self.corruptor.parameters())
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad = parameter.grad / max(self._passes, 1)  # accumulated passes count as processes do
        self._passes = 0
        norm = nn.utils.clip_grad_norm_(parameters, self.settings.clip)
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad = parameter.grad.nan_to_num(0.0, 0.0, 0.0).neg_()  # the sign of Eq. 3's maximum
        self.optimizer.step()
        self.optimizer.zero_grad()
        return {"corruptor_grad_norm": norm.detach(), "selection_change": self._selection_change()}

    def _optimizer(self) -> torch.optim.Optimizer:
        settings = self.settings
        parameters = self.corruptor.parameters()
        return torch.optim.SGD(
            parameters, lr=settings.lr, momentum=0.9, nesterov=True, weight_decay=settings.weight_decay
        )

    @torch.no_grad()
    def _selection_change(self) -> Tensor:
        """Share of the occluded patches of the last batch that the moved model would not occlude any more."""
        if self._last is None:
            return torch.zeros(())
        images, kept = self._last
        occluded = kept == 0
        now = self.corruptor.keep(images, self.settings.ratio) == 0
        return 1 - (occluded & now).sum() / occluded.sum().clamp(min=1)


def corruptor_for(
    model: nn.Module, size: tuple[int, int] | None, *, channels: int = 3, kind: str | None = None
) -> Corruptor | ConvCorruptor:
    """A fresh corruption model whose patches are the tokens of this model, or of the encoder in it.

    Args:
        model: a classifier, a segmenter or a detector.
        size: height and width of the images; None where they differ.
        channels: of the images.
        kind: ``published``, or ``conv`` for any size (ours); None takes ``conv`` where sizes differ or are large.
    """
    encoder: Any = getattr(model, "encoder", None) or getattr(model, "backbone", None) or model
    patch: Any = getattr(encoder, "patch_size", None)
    patch = patch or getattr(getattr(encoder, "patch_embed", None), "patch_size", None)
    patch = patch[0] if isinstance(patch, tuple) else patch
    if not isinstance(patch, int):
        raise HoldfastError(f"AFAT needs the patch size of the backbone, and {type(encoder).__name__} has none")
    if size is not None and (size[0] % patch or size[1] % patch):
        raise HoldfastError(f"images of {size[0]}×{size[1]} cannot be divided into patches of {patch} pixels")
    grid = (size[0] // patch, size[1] // patch) if size is not None else None
    if kind == "published" and grid is None:
        raise HoldfastError("corruptor of AFAT must be 'conv' where images differ in size, got 'published'")
    if kind == "conv" or grid is None or (kind is None and grid[0] * grid[1] > LARGEST_GRID):
        return ConvCorruptor(patch_size=patch, channels=channels)
    return Corruptor(grid, patch_size=patch, channels=channels)


def afat_term(options: Any, context: Context) -> FeatureAlignment:
    """From a recipe's option ``afat``; the corruption model gets the grid of the model."""
    settings = from_options(AfatSettings, "afat", options)
    if settings.selection == "attention" and isinstance(context.model, GeneralizedRCNN):
        raise HoldfastError("selection of AFAT must be adversarial or random for a detector, got 'attention'")
    corruptor = corruptor_for(context.model, context.size, kind=settings.corruptor)
    return FeatureAlignment(corruptor, settings, mean=context.mean, std=context.std)
