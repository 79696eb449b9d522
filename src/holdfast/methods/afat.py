"""AFAT: aligns features of clean images and of images occluded by an adversarial corruption model.

    x̂ = clamp(x ⊙ M + δ ⊙ (1 − M))                            Eq. 1, `occlude`; M from the corruption model
    L_align = mean over blocks of mean (f_l(x̂) − f_l(x))²     Eq. 2, `alignment`
    min over the classifier, max over the corruption model of  CE(F(x), y) + λ L_align     Eq. 3, `FeatureAlignment`

One backward pass serves both: the classifier minimises, and the corruption model gets the same gradient, scaled,
clamped and negated. Published later as RSPC; as released where paper and code differ.
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
LEARNT = ("adversarial", "cross-entropy")  # selections with a trained corruption model
LARGEST_GRID = 1024  # patches up to which the published corruption model is used: its linear layer then has 1 M weights


def occlude(images: Tensor, keep: Tensor, noise: Tensor, *, low: Tensor | float, high: Tensor | float) -> Tensor:
    """Replace the patches that are not kept by noise: clamp(x ⊙ M + δ ⊙ (1 − M), low, high).

    AFAT, Eq. 1. ``keep`` is (B, 1, rows, columns), 1 = keep, and is upsampled to the images' size; ``low`` and ``high``
    are the normalised values of 0 and 1.
    """
    mask = in_pixels(keep, images)
    bounds = [torch.as_tensor(bound, dtype=images.dtype, device=images.device) for bound in (low, high)]
    return torch.clamp(images * mask + noise * (1 - mask), min=bounds[0], max=bounds[1])


def alignment(corrupted: Sequence[Tensor], clean: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Alignment loss: the mean squared errors of the blocks' features, averaged over blocks; and the errors.

    AFAT, Eq. 2; as released: the element mean rather than the squared norm, a denominator of L + 1e-4, and neither
    side's features are detached.
    """
    if len(corrupted) != len(clean) or not clean:
        raise HoldfastError(
            f"alignment needs the features of the same blocks for both views, got {len(corrupted)} and {len(clean)}"
        )
    # the mean over elements, not Eq. 2's sum: λ = 0.005 was tuned for it, and a sum would be 10⁴–10⁵ times larger
    errors = [nn.functional.mse_loss(a, b) for a, b in zip(corrupted, clean, strict=True)]
    return torch.stack(errors).sum() / (len(errors) + 1e-4), errors


@dataclass(frozen=True)
class AfatSettings:
    """Settings of AFAT; the defaults are those of the released code.

    Attributes:
        weight: λ of the alignment loss; 0.005 is the value for 300 epochs of ImageNet.
        ratio: ρ, the fraction of patches to occlude.
        selection: rule that selects the patches: the corruption model trained on the alignment loss (``adversarial``)
            or on the ``cross-entropy`` of the occluded images, or a ``random`` choice (the ablations of the paper's
            Tables 4 and 6; ours, none was released), or ``attention``: the patches that receive the most (ours; see
            docs/afat.md).
        occlusion: content of occluded patches: ``noise``, U[0, 1) in normalised space, or ``drop``, the mean colour.
        grad_scale: factor of the corruption model's gradients before they are clamped, in any precision. The released
            code never unscales its mixed-precision gradients; without this factor the corruption model hardly learns.
        lr: constant learning rate of the corruption model's SGD (momentum 0.9, Nesterov).
        weight_decay: weight decay of the same optimizer; it is not negated, so weights still shrink.
        clip: norm to which the corruption model's gradient is clipped.
        corruptor: architecture of the corruption model: ``published``, or ``conv`` (ours) for images of any size; None
            uses ``conv`` for more than 1,024 patches and for images of different sizes.
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
    """AFAT's loss term: occludes the images of a step, aligns every block's features, trains the corruption model."""

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
        self._last: tuple[Tensor, Tensor] | None = None  # normalised images and their masks of kept patches
        self._blocked = False  # True while the gradient of the alignment loss must not reach the corruption model
        self._loss_scale: Tensor | float = 1.0  # loss scale of the current backward pass
        self._passes = 0  # backward passes since the last update

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """The corruption model, if it is trained."""
        return {"corruptor": self.corruptor} if self.optimizer else {}

    @property
    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """The optimizer of the corruption model, if it is trained."""
        return {"corruptor": self.optimizer} if self.optimizer else {}

    def prepare(self, images: Tensor, forward: ForwardPass) -> Views:
        """The views of one joint batch [corrupted ; clean]."""
        return (self.corrupt(images, forward.model), images)

    def loss(self, forward: ForwardPass) -> Loss:
        """λ · alignment. Its gradient reaches the classifier unchanged, the corruption model through ``_rescale``."""
        if self.settings.selection == "cross-entropy":
            occluded = forward.setting.task_loss(forward.outputs_of(self), forward.targets)
            self._ascend_cross_entropy(occluded)
        pairs = [forward.pair(self, feature) for feature in forward.features]
        loss, errors = alignment([corrupted for corrupted, _ in pairs], [clean for _, clean in pairs])
        weighted = self.settings.weight * loss
        if weighted.requires_grad and self.optimizer:
            weighted.register_hook(self._record_loss_scale)
        return Loss(
            weighted, {"alignment": loss.detach(), **{f"alignment_{i}": e.detach() for i, e in enumerate(errors)}}
        )

    def corrupt(self, images: Tensor, model: nn.Module | None = None) -> Tensor:
        """Normalised images with the chosen patches occluded (AFAT, Eq. 1); gradients reach the corruption model.

        ``model`` is the model whose attention selects the patches, for that selection.
        """
        self._blocked, self._loss_scale = False, 1.0
        keep = self._keep(images, model)
        noise = torch.rand_like(images) if self.settings.occlusion == "noise" else torch.zeros_like(images)
        self._last = (images.detach(), keep.detach())
        return occlude(images, keep, noise, low=self.low, high=self.high)

    def _keep(self, images: Tensor, model: nn.Module | None) -> Tensor:
        if self.settings.selection == "attention":
            if model is None:
                raise HoldfastError("selection 'attention' of AFAT needs a model: pass corrupt(images, model)")
            return without_most_attended(model, images, self.settings.ratio)
        rows, columns = self.corruptor.grid_of(images)
        if self.settings.selection == "random":
            scores = torch.rand(len(images), rows * columns, device=images.device)
            return select_lowest(scores, self.settings.ratio).unflatten(1, (1, rows, columns))
        # the lowest scores are occluded, not the paper's "top ρ": the sign of a score is learned, so both are the same
        keep = self.corruptor.keep(images, self.settings.ratio)
        if keep.requires_grad:
            keep.register_hook(self._rescale)
        return keep

    def _rescale(self, gradient: Tensor) -> Tensor:
        """The mask's gradient, before it is clamped, with ``grad_scale`` instead of the loop's loss scale."""
        # in the release the ±1 clamp and the norm clip act on gradients that still carry the AMP scale (2¹⁶ at first):
        # in fp32 without it the corruption model moves 200–1600 times less, so every precision gets the same factor
        return torch.zeros_like(gradient) if self._blocked else gradient * (self.settings.grad_scale / self._loss_scale)

    def _record_loss_scale(self, gradient: Tensor) -> None:
        """Record the factor of the total loss (fp16's loss scale); this hook runs before the mask's gradient does."""
        self._loss_scale, self._passes = gradient, self._passes + 1

    def _ascend_cross_entropy(self, loss: Tensor) -> None:
        """Give the corruption model the gradient of the cross-entropy, and none of the alignment loss."""
        parameters = list(self.corruptor.parameters())
        for parameter, gradient in zip(
            parameters, torch.autograd.grad(loss, parameters, retain_graph=True), strict=True
        ):
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        self._blocked = True

    def update(self) -> dict[str, Tensor]:
        """Update the corruption model by gradient ascent; call it once per step, after backward."""
        if self.optimizer is None:
            return {}
        parameters = list(self.corruptor.parameters())
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad = parameter.grad / max(self._passes, 1)  # a mean, as over processes
        self._passes = 0
        norm = nn.utils.clip_grad_norm_(parameters, self.settings.clip)
        for parameter in parameters:
            if parameter.grad is not None:
                # negated after clipping: the max of AFAT Eq. 3. Only the gradient is, so SGD's weight decay still
                # shrinks the weights; non-finite entries (an overflow of fp16) become 0, as released
                parameter.grad = parameter.grad.nan_to_num(0.0, 0.0, 0.0).neg_()
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
        """Fraction of the last batch's occluded patches that the updated corruption model no longer occludes."""
        if self._last is None:
            return torch.zeros(())
        images, kept = self._last
        occluded = kept == 0
        now = self.corruptor.keep(images, self.settings.ratio) == 0
        return 1 - (occluded & now).sum() / occluded.sum().clamp(min=1)


def corruptor_for(
    model: nn.Module, size: tuple[int, int] | None, *, channels: int = 3, kind: str | None = None
) -> Corruptor | ConvCorruptor:
    """A new corruption model whose patches are the tokens of this model, or of its encoder.

    Args:
        model: a classifier, a segmenter or a detector.
        size: height and width of the images; None if they differ.
        channels: number of image channels.
        kind: ``published``, or ``conv`` for any size (ours); None uses ``conv`` if sizes differ or are large.
    """
    encoder: Any = getattr(model, "encoder", None) or getattr(model, "backbone", None) or model
    patch: Any = getattr(encoder, "patch_size", None)
    patch = patch or getattr(getattr(encoder, "patch_embed", None), "patch_size", None)
    patch = patch[0] if isinstance(patch, tuple) else patch
    if not isinstance(patch, int):
        raise HoldfastError(
            f"AFAT needs a backbone with a patch size, and {type(encoder).__name__} has none: choose a transformer"
        )
    if size is not None and (size[0] % patch or size[1] % patch):
        raise HoldfastError(f"images of {size[0]}×{size[1]} cannot be divided into patches of {patch} pixels")
    grid = (size[0] // patch, size[1] // patch) if size is not None else None
    if kind == "published" and grid is None:
        raise HoldfastError("corruptor of AFAT must be 'conv' for images of different sizes, got 'published'")
    if kind == "conv" or grid is None or (kind is None and grid[0] * grid[1] > LARGEST_GRID):
        return ConvCorruptor(patch_size=patch, channels=channels)
    return Corruptor(grid, patch_size=patch, channels=channels)


def afat_term(options: Any, context: Context) -> FeatureAlignment:
    """Build AFAT from a recipe's option ``afat``; the corruption model gets the model's token grid."""
    settings = from_options(AfatSettings, "afat", options)
    if settings.selection == "attention" and isinstance(context.model, GeneralizedRCNN):
        raise HoldfastError("selection of AFAT must be adversarial or random for a detector, got 'attention'")
    corruptor = corruptor_for(context.model, context.size, kind=settings.corruptor)
    return FeatureAlignment(corruptor, settings, mean=context.mean, std=context.std)
