"""Patch-Fool: replace one patch so that the class changes and attention turns to it.

Fu et al., ICLR 2022. The patch that the most attention is paid to is replaced by random pixels, which Adam then moves
up the cross-entropy and up the attention that the early blocks pay to the patch.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from holdfast.attacks import draws
from holdfast.attacks.goal import check_logits, classes, cross_entropy
from holdfast.attacks.norms import NORMS
from holdfast.attacks.patches import check_grid, choose_patches, patch_region, token_handles
from holdfast.attacks.pixels import backbone, check_differentiable, check_images
from holdfast.attacks.result import AttackResult
from holdfast.attacks.undisturbed import own, predict, single_or_double, undisturbed
from holdfast.attention import AttentionHandle, watch
from holdfast.errors import HoldfastError

Surgery = Literal["as-coded", "orthogonal"]
SELECT_BLOCK = 4  # whose attention chooses the patch in the published attack


@dataclass(frozen=True)
class PatchFool:
    """Patch-Fool's settings; the defaults are the single-patch attack of the paper and of AFAT's Table 3.

    Attributes:
        steps: Adam's steps; 0 leaves random pixels, the baseline that the attack has to beat.
        lr: Adam's step length in units of [0,1] pixels, multiplied by ``decay`` every ``decay_every`` steps.
        attention_weight: weight of the attention terms; 0 is the cross-entropy-only form.
        surgery: what to do with the part of an attention gradient that opposes the cross-entropy's: see `pcgrad`.
        select: choose patches by ``attention``, by the ``gradient`` of the loss, or at ``random``.
        select_block: the block whose attention chooses; None: block 4 as published, or the last of a shallower model.
        patches: how many patches to replace; the attention terms look at the first.
        patch_size: side of a patch in pixels; from the model's token grid unless given, 16 without one.
        pixels: the sparse variant: change only so many pixels of the patches (250 in the paper), chosen by a mask that
            is learned for ``mask_steps`` steps at rate ``mask_lr`` and then frozen.
        bound: the mild variant: the norm, ``linf`` or ``l2``, in which the patch stays within ``eps`` of the image.
        eps: radius of the mild variant, in units of [0,1] pixels.
    """

    steps: int = 250
    lr: float = 0.22
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
        for name, known in (("surgery", ("as-coded", "orthogonal")), ("select", ("attention", "gradient", "random"))):
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
        self, model: nn.Module, images: Tensor, labels: Tensor, *, seed: int = 0, ids: draws.Ids | None = None
    ) -> AttackResult:
        """Replace the chosen patches, optimise them, and score the last iterate.

        Patch-Fool; as released: block 0's attention is left out, and gradients meet per block. Deviations:
        losses are taken per image (the released code averages the batch, whose size then enters its surgery), and a
        model without token attention is attacked through the cross-entropy alone, at the patch where its gradient is
        longest. The record says which form was run, through which blocks, and which patches (row, column) were chosen
        by what.
        """
        check_images(images)
        names = draws.image_ids(ids, len(images))
        with undisturbed(model) as quiet:
            images, labels = own(images, labels)
            plan = _plan(self, quiet, images, labels, seed=seed, names=names)
            adversarial = _optimise(self, quiet, images, labels, plan, seed=seed, names=names)
            predictions = predict(quiet, adversarial, labels)
        record = {"attack": "patch-fool", **asdict(self), **plan.record(), "seed": seed}
        return AttackResult(adversarial, predictions, predictions != classes(labels), record)


def pcgrad(gradient: Tensor, anchor: Tensor, *, surgery: Surgery = "as-coded") -> Tensor:
    """Remove from an image's gradient g what opposes the anchor a, where their cosine is negative.

    Patch-Fool, after PCGrad (Yu et al. 2020). ``orthogonal`` subtracts the projection, (⟨g,a⟩ / ‖a‖²)·a; ``as-coded``
    divides by ‖a‖ instead, as the released code does.
    """
    unit = NORMS["l2"].step(anchor)
    opposing = (gradient * unit).flatten(1).sum(dim=1).clamp_max(0).view(-1, 1, 1, 1)
    return gradient - opposing * (anchor if surgery == "as-coded" else unit)


def attention_term(handle: AttentionHandle, patch: Tensor) -> Tensor:
    """Mean over queries of the logarithm of the head-averaged attention to a patch, (B,).

    Patch-Fool's attention-aware loss; ``patch`` numbers the patches row by row, without class or register tokens.
    """
    maps = handle.maps().float().mean(dim=1)  # B queries keys
    column = (patch + handle.prefix).view(-1, 1, 1).expand(-1, maps.shape[1], 1)
    return maps.gather(2, column).squeeze(2).clamp_min(torch.finfo(maps.dtype).tiny).log().mean(dim=1)


@dataclass(frozen=True, eq=False)
class _Plan:
    """Where to attack and through which blocks."""

    chosen: Tensor  # B patches
    grid: tuple[int, int]
    blocks: tuple[int, ...]
    selected_by: str
    has_attention: bool

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
    chosen = choose_patches(
        model, images, labels, grid=grid, count=attack.patches, select=select, handle=handle, seed=seed, names=names
    )
    blocks = tuple(range(1, len(seen) // 2)) if attack.attention_weight else ()
    return _Plan(chosen, grid, blocks, select, bool(seen))


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
    content = _start(attack, images, region, seed=seed, names=names)
    optimiser = torch.optim.Adam([content], lr=attack.lr)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, attack.decay_every, attack.decay)
    mask = _PixelMask(attack, region, seed=seed, names=names)
    for step in range(attack.steps):
        points = torch.where(mask.pixels, content.detach(), images).requires_grad_()
        direction = _direction(attack, model, points, labels, plan, region)
        content.grad = -direction * mask.pixels
        if attack.pixels is not None and step < attack.mask_steps:
            mask.ascend(direction * (content.detach() - images))
        optimiser.step()
        schedule.step()
        content.data = _into_bounds(attack, content.detach(), images, region)
    return torch.where(mask.pixels, content.detach(), images)


def _start(attack: PatchFool, images: Tensor, region: Tensor, *, seed: int, names: list[int | str]) -> Tensor:
    if attack.bound is None or attack.eps is None:
        return draws.uniform(images, seed=seed, ids=names, purpose="patch content")
    delta = NORMS[attack.bound].start(images, attack.eps, seed=seed, ids=names, purpose="patch content")
    return _into_bounds(attack, images + delta, images, region)


def _into_bounds(attack: PatchFool, content: Tensor, images: Tensor, region: Tensor) -> Tensor:
    if attack.bound is not None and attack.eps is not None:
        content = images + NORMS[attack.bound].project((content - images) * region, attack.eps)
    return content.clamp(0, 1)


class _PixelMask:
    """The pixels that may change: all of the region, or the best so many of it.

    The scores of the sparse variant are learned straight through the choice of the highest.
    """

    def __init__(self, attack: PatchFool, region: Tensor, *, seed: int, names: list[int | str]) -> None:
        self.region, self.count = region, attack.pixels
        self.pixels = region
        if self.count is None:
            return
        room = int(region[:1].sum())
        if self.count > room:
            raise HoldfastError(f"pixels must be at most the {room} of the chosen patches, got {self.count}")
        self.scores = draws.uniform(region.float(), seed=seed, ids=names, purpose="patch mask")
        self.optimiser = torch.optim.Adam([self.scores], lr=attack.mask_lr)
        self._binarise()

    def ascend(self, gain: Tensor) -> None:
        """``gain`` is what the objective would gain per pixel and channel if the pixel were replaced."""
        self.scores.grad = -gain.sum(dim=1, keepdim=True)
        self.optimiser.step()
        self._binarise()

    def _binarise(self) -> None:
        best = (
            self.scores.detach()
            .masked_fill(~self.region, float("-inf"))
            .flatten(1)
            .topk(self.count or 0, dim=1)
            .indices
        )
        chosen = torch.zeros_like(self.region).flatten(1).scatter(1, best, True)
        self.pixels = chosen.view_as(self.region)


def _direction(
    attack: PatchFool, model: nn.Module, points: Tensor, labels: Tensor, plan: _Plan, region: Tensor
) -> Tensor:
    """The gradient of the cross-entropy plus the attention terms' after surgery, per image, on the patches alone."""
    if not plan.blocks:
        return _ascent(model(points), points, labels, retain=False) * region
    with watch(backbone(model)) as seen:
        logits = model(points)
    climb = _ascent(logits, points, labels, retain=True) * region
    total = climb.clone()
    for block in plan.blocks:
        term = attention_term(seen.attention[block], plan.chosen[:, 0]).sum()
        (pull,) = torch.autograd.grad(term, points, retain_graph=True)
        total += attack.attention_weight * pcgrad(pull * region, climb, surgery=attack.surgery)
    return total


def _ascent(logits: Tensor, points: Tensor, labels: Tensor, *, retain: bool) -> Tensor:
    check_logits(logits, labels)
    check_differentiable(logits)
    loss = cross_entropy(single_or_double(logits), labels).sum()
    return torch.autograd.grad(loss, points, retain_graph=retain)[0]
