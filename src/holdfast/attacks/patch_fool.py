"""Patch-Fool (Fu et al., ICLR 2022): an adversarial patch that changes the class and attracts attention.

The patch that receives the most attention is replaced by random pixels; Adam then maximises the cross-entropy and the
attention that the early blocks pay to the patch.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from holdfast.attacks import rng
from holdfast.attacks.base import AttackResult
from holdfast.attacks.criteria import check_logits, classes, cross_entropy
from holdfast.attacks.eval_mode import attack_mode, own_copies, predict, single_or_double
from holdfast.attacks.norms import NORMS
from holdfast.attacks.patch_selection import check_grid, choose_patches, patch_region, token_handles
from holdfast.attacks.pixel_model import PixelModel, backbone, check_differentiable, check_images
from holdfast.attention import AttentionHandle, watch
from holdfast.errors import HoldfastError


class PatchMask:
    """The pixels that may change: the whole region, or its ``count`` highest-scored pixels.

    Patch-Fool's sparse variant; scores are learned with a straight-through gradient of the top-k selection.
    """

    def __init__(self, region: Tensor, *, count: int | None, lr: float, seed: int, names: list[int | str]) -> None:
        self.region, self.count = region, count
        self.pixels = region  # B 1 H W
        if count is None:
            return
        room = int(region[:1].sum())
        if count > room:
            raise HoldfastError(f"pixels must be at most the {room} of the chosen patches, got {count}")
        self.scores = rng.uniform(region.float(), seed=seed, ids=names, purpose="patch mask")
        self.optimiser = torch.optim.Adam([self.scores], lr=lr)
        self._binarise()

    def ascend(self, gain: Tensor) -> None:
        """Update the scores; ``gain``, (B, 1, H, W), is the gradient of the objective with respect to the mask."""
        self.scores.grad = -gain
        self.optimiser.step()
        self._binarise()

    def _binarise(self) -> None:
        scores = self.scores.detach().masked_fill(~self.region, float("-inf"))
        best = scores.flatten(1).topk(self.count or 0, dim=1).indices
        self.pixels = torch.zeros_like(self.region).flatten(1).scatter(1, best, True).view_as(self.region)


Surgery = Literal["as-coded", "orthogonal"]
Units = Literal["normalised", "pixels"]
SELECT_BLOCK = 4  # block whose attention selects the patch in the published attack


@dataclass(frozen=True)
class PatchFool:
    """Patch-Fool's settings; the defaults are the single-patch attack of the paper and of AFAT's Table 3.

    Attributes:
        steps: steps of Adam; 0 leaves random pixels, the baseline of the attack.
        lr: learning rate of Adam in ``units``, multiplied by ``decay`` every ``decay_every`` steps.
        units: space of Adam and of the gradient surgery: ``normalised`` values, as published (a step of 0.22 is about
            0.05 in pixels for ImageNet's std), or [0,1] ``pixels``.
        attention_weight: weight of the attention terms; 0 is the cross-entropy-only form.
        surgery: treatment of attention gradients that oppose the gradient of the cross-entropy: see `pcgrad`.
        select: select patches by ``attention``, by the ``gradient`` of the loss, or at ``random``.
        select_block: block whose attention selects; None: block 4 as published, or the last of a shallower model.
        patches: number of patches to replace; the attention terms use the first.
        patch_size: side of a patch in pixels; by default from the model's token grid, or 16 without one.
        pixels: sparse variant: number of pixels of the patches to change (250 in the paper), selected by a mask that is
            learned at rate ``mask_lr`` and frozen at step ``mask_steps``, before the last of its updates.
        bound: mild variant: the norm in which the patch stays within ``eps`` of the image, ``linf``, or ``l2`` for each
            channel, so that three channels together reach √3·``eps``.
        eps: radius of the mild variant, in units of [0,1] pixels.
    """

    steps: int = 250
    lr: float = 0.22
    units: Units = "normalised"
    decay: float = 0.95
    decay_every: int = 10
    attention_weight: float = 0.002
    surgery: Surgery = "as-coded"
    select: Literal["attention", "gradient", "random"] = "attention"
    select_block: int | None = None
    patches: int = 1
    patch_size: int | None = None
    pixels: int | None = None
    mask_steps: int = 200
    mask_lr: float = 1e-2
    bound: Literal["linf", "l2"] | None = None
    eps: float | None = None

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise HoldfastError(f"steps must be 0 or more, got {self.steps}")
        for name in ("lr", "decay", "decay_every", "mask_lr", "patches"):
            if not getattr(self, name) > 0:
                raise HoldfastError(f"{name} must be positive, got {getattr(self, name)}")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise HoldfastError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        if self.pixels is not None and self.pixels < 1:
            raise HoldfastError(f"pixels must be at least 1, got {self.pixels}")
        if self.bound is not None and self.bound not in NORMS:
            raise HoldfastError(f"bound must be one of {', '.join(NORMS)}, got {self.bound!r}")
        if (self.bound is None) != (self.eps is None) or (self.eps is not None and not self.eps >= 0):
            raise HoldfastError(
                f"bound and eps (0 or more) belong together, got bound={self.bound!r} and eps={self.eps}"
            )

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, *, seed: int = 0, ids: rng.Ids | None = None
    ) -> AttackResult:
        """Replace the selected patches, optimise them, and predict the last iterate.

        As released, block 0's attention is left out and the surgery is applied per block. The normalisation is that of
        the `PixelModel`; other models work in pixels. Deviations: losses are computed per image (the released code
        averages over the batch, whose size then affects the surgery), and a model without token attention is attacked
        with the cross-entropy alone, at the patch where its gradient is largest. The record names the form that was
        run, the blocks, and the selected patches (row, column) with the selection rule.
        """
        check_images(images)
        names = rng.image_ids(ids, len(images))
        with attack_mode(model) as victim:
            images, labels = own_copies(images, labels)
            plan = _plan(self, victim, images, labels, seed=seed, names=names)
            adversarial = _optimise(self, victim, images, labels, plan, seed=seed, names=names)
            predictions = predict(victim, adversarial, labels)
        record = {"attack": "patch-fool", **asdict(self), **plan.record(), "seed": seed}
        return AttackResult(adversarial, predictions, predictions != classes(labels), record)


_CHOICES = {
    "units": ("normalised", "pixels"),
    "surgery": ("as-coded", "orthogonal"),
    "select": ("attention", "gradient", "random"),
}


def pcgrad(gradient: Tensor, anchor: Tensor, *, surgery: Surgery = "as-coded") -> Tensor:
    """Remove the component of an image's gradient g that opposes the anchor a, where their cosine is negative.

    Patch-Fool, after PCGrad (Yu et al. 2020). ``orthogonal`` subtracts the projection, (⟨g,a⟩ / ‖a‖²)·a; ``as-coded``
    divides by ‖a‖ instead, as the released code does.
    """
    unit = NORMS["l2"].step(anchor)
    opposing = (gradient * unit).flatten(1).sum(dim=1).clamp_max(0).view(-1, 1, 1, 1)
    return gradient - opposing * (anchor if surgery == "as-coded" else unit)


def attention_term(handle: AttentionHandle, patch: Tensor) -> Tensor:
    """Mean over queries of the log of the head-averaged attention to a patch, (B,).

    Patch-Fool's attention-aware loss; ``patch`` is an index into the patches, row by row, without class or register
    tokens.
    """
    maps = handle.maps().float().mean(dim=1)  # B queries keys
    column = (patch + handle.prefix).view(-1, 1, 1).expand(-1, maps.shape[1], 1)
    # softmax may underflow to 0, and log 0 = −∞ has no gradient: the smallest normal number stands in
    return maps.gather(2, column).squeeze(2).clamp_min(torch.finfo(maps.dtype).tiny).log().mean(dim=1)


@dataclass(frozen=True, eq=False)
class _Values:
    """The space that Adam works in: normalised values, or pixels."""

    mean: Tensor | float = 0.0
    std: Tensor | float = 1.0

    @classmethod
    def of(cls, model: nn.Module, units: Units) -> "_Values":
        return cls(model.mean, model.std) if isinstance(model, PixelModel) and units == "normalised" else cls()

    def from_pixels(self, pixels: Tensor) -> Tensor:
        return (pixels - self.mean) / self.std

    def to_pixels(self, values: Tensor) -> Tensor:
        return values * self.std + self.mean


@dataclass(frozen=True, eq=False)
class _Plan:
    """The patches to attack, the blocks whose attention is used, and the space of the optimisation."""

    chosen: Tensor  # B patches
    grid: tuple[int, int]
    blocks: tuple[int, ...]
    selected_by: str
    has_attention: bool
    values: _Values

    def record(self) -> dict[str, Any]:
        columns = self.grid[1]
        return {
            "form": "attention" if self.blocks else "cross-entropy-only",
            "token_attention": self.has_attention,
            "blocks": list(self.blocks),
            "selected_by": self.selected_by,
            "chosen": [[divmod(patch, columns) for patch in row] for row in self.chosen.tolist()],
        }


def _plan(
    attack: PatchFool, model: nn.Module, images: Tensor, labels: Tensor, *, seed: int, names: list[int | str]
) -> _Plan:
    handles = token_handles(model, images)
    size = attack.patch_size or (images.shape[-2] // handles[0].grid[0] if handles and handles[0].grid else 16)
    grid = check_grid(images, size)
    seen = handles if all(handle.grid == grid for handle in handles) else []
    if attack.patches > grid[0] * grid[1]:
        raise HoldfastError(f"patches must be at most {grid[0] * grid[1]}, got {attack.patches}")
    select = attack.select if seen or attack.select != "attention" else "gradient"
    handle = seen[_selecting_block(attack, len(seen))] if select == "attention" else None
    values = _Values.of(model, attack.units)
    chosen = choose_patches(
        model,
        images,
        labels,
        grid=grid,
        count=attack.patches,
        select=select,
        handle=handle,
        weights=values.std,
        seed=seed,
        names=names,
    )
    # as released: the attention terms read the first half of the blocks, without block 0
    blocks = tuple(range(1, len(seen) // 2)) if attack.attention_weight else ()
    return _Plan(chosen, grid, blocks, select, bool(seen), values)


def _selecting_block(attack: PatchFool, blocks: int) -> int:
    if attack.select_block is None:
        return min(SELECT_BLOCK, blocks - 1)
    if attack.select_block >= blocks:
        raise HoldfastError(f"select_block must be below the model's {blocks} blocks, got {attack.select_block}")
    return attack.select_block


def _optimise(
    attack: PatchFool,
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    plan: _Plan,
    *,
    seed: int,
    names: list[int | str],
) -> Tensor:
    region = patch_region(plan.chosen, plan.grid, images)  # B 1 H W
    values = plan.values
    content = values.from_pixels(_start(attack, images, seed=seed, names=names))
    optimiser = torch.optim.Adam([content], lr=attack.lr)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, attack.decay_every, attack.decay)
    mask = PatchMask(region, count=attack.pixels, lr=attack.mask_lr, seed=seed, names=names)
    for step in range(attack.steps):
        points = torch.where(mask.pixels, values.to_pixels(content.detach()), images).requires_grad_()
        gradients = _gradients(model, points, labels, plan)
        content.grad = -_combine_gradients(attack, [gradient * mask.pixels for gradient in gradients])
        # as released: mask_steps − 1 updates, then the remaining steps optimise the content under a fixed mask
        if attack.pixels is not None and step < attack.mask_steps - 1:
            gains = [(gradient * content.detach() * region).sum(dim=1, keepdim=True) for gradient in gradients]
            mask.ascend(_combine_gradients(attack, gains))
        optimiser.step()
        schedule.step()
        content.data = values.from_pixels(_into_bounds(attack, values.to_pixels(content.detach()), images, region))
    return torch.where(mask.pixels, values.to_pixels(content.detach()).clamp(0, 1), images)


def _start(attack: PatchFool, images: Tensor, *, seed: int, names: list[int | str]) -> Tensor:
    """Random pixels, within the L∞ bound if there is one; an L2 bound applies from the first projection on."""
    if attack.bound != "linf" or attack.eps is None:
        return rng.uniform(images, seed=seed, ids=names, purpose="patch content")
    delta = NORMS["linf"].start(images, attack.eps, seed=seed, ids=names, purpose="patch content")
    return (images + delta).clamp(0, 1)


def _into_bounds(attack: PatchFool, content: Tensor, images: Tensor, region: Tensor) -> Tensor:
    """Project pixels onto the bound (for L2, channel by channel) and clamp them to [0,1]."""
    if attack.bound is not None and attack.eps is not None:
        delta = ((content - images) * region).flatten(0, 1)  # (B·3) H W
        content = images + NORMS[attack.bound].project(delta, attack.eps).view_as(images)
    return content.clamp(0, 1)


def _gradients(model: nn.Module, points: Tensor, labels: Tensor, plan: _Plan) -> list[Tensor]:
    """The gradients of the cross-entropy and of each block's attention term, in the optimisation's space."""
    std = plan.values.std
    if not plan.blocks:
        return [_ascent(model(points), points, labels, retain=False) * std]
    with watch(backbone(model)) as seen:
        logits = model(points)
    gradients = [_ascent(logits, points, labels, retain=True) * std]
    for block in plan.blocks:
        term = attention_term(seen.attention[block], plan.chosen[:, 0]).sum()
        gradients.append(torch.autograd.grad(term, points, retain_graph=True)[0] * std)
    return gradients


def _combine_gradients(attack: PatchFool, gradients: list[Tensor]) -> Tensor:
    """The gradient of the cross-entropy, which comes first, plus the attention gradients after surgery."""
    classification, *attention = gradients
    total = classification.clone()
    for gradient in attention:
        total += attack.attention_weight * pcgrad(gradient, classification, surgery=attack.surgery)
    return total


def _ascent(logits: Tensor, points: Tensor, labels: Tensor, *, retain: bool) -> Tensor:
    check_logits(logits, labels)
    check_differentiable(logits)
    loss = cross_entropy(single_or_double(logits), labels).sum()
    return torch.autograd.grad(loss, points, retain_graph=retain)[0]
