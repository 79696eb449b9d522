"""Patch selection: by attention, by gradient or at random, and the pixels of the selected patches."""

from math import gcd
from typing import Literal

import torch
from torch import Tensor, nn

from holdfast.attacks import rng
from holdfast.attacks.criteria import check_logits, cross_entropy
from holdfast.attacks.eval_mode import attack_mode, forward_without_cached_casts
from holdfast.attacks.pixel_model import backbone, check_differentiable
from holdfast.attention import AttentionHandle, can_watch, watch
from holdfast.errors import HoldfastError
from holdfast.models.corruption_model import select_lowest


@torch.no_grad()
def token_handles(model: nn.Module, images: Tensor) -> list[AttentionHandle]:
    """Attention handles of all blocks over all tokens of an image; empty if the model has no token attention."""
    inner = backbone(model)
    if not can_watch(inner):
        return []
    with watch(inner) as seen:
        model(images)
    return seen.attention if all(handle.kind == "token" and handle.grid for handle in seen.attention) else []


def attention_received(handle: AttentionHandle) -> Tensor:
    """The attention each patch receives, averaged over heads and queries, (B, N), without class or register tokens."""
    return handle.maps().mean(dim=(1, 2))[:, handle.prefix :]


@torch.no_grad()
def attention_received_by_patches(model: nn.Module, images: Tensor) -> Tensor:
    """The attention each patch receives, averaged over queries, heads and blocks: (B, 1, rows, columns).

    Takes a separate forward pass in evaluation mode.
    """
    handles: list[AttentionHandle] = []
    with attack_mode(model) as victim, torch.no_grad():
        inner = backbone(victim)
        if can_watch(inner):
            with watch(inner) as seen:
                forward_without_cached_casts(victim, images)
            handles = [handle for handle in seen.attention if handle.kind == "token"]
    grid = handles[0].grid if handles else None
    if grid is None or any(handle.grid != grid for handle in handles):
        raise HoldfastError(
            "attention received by patches needs blocks that attend to all patches of one grid (ViT, DeiT, FAN), "
            f"got {type(inner).__name__}: select patches at random instead"
        )
    return torch.stack([attention_received(handle) for handle in handles]).mean(0).unflatten(1, (1, *grid))


def without_most_attended(model: nn.Module, images: Tensor, ratio: float) -> Tensor:
    """Mask of kept patches, 0 at the fraction ``ratio`` that receives the most attention: (B, 1, rows, columns)."""
    received = attention_received_by_patches(model, images)
    return select_lowest(-received.flatten(1), ratio).view_as(received)


def choose_patches(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    grid: tuple[int, int],
    count: int,
    select: Literal["attention", "gradient", "random"],
    handle: AttentionHandle | None,
    weights: Tensor | float = 1.0,
    seed: int,
    names: list[int | str],
) -> Tensor:
    """Indices of the ``count`` patches to attack, best first, (B, count), row by row.

    ``weights``, one per channel, convert the gradient from pixels to another space (std for normalised values).
    """
    if select == "attention" and handle is not None:
        scores = attention_received(handle)
    elif select == "gradient":
        scores = _gradient_size(model, images, labels, grid=grid, weights=weights)
    else:
        scores = rng.uniform(images.new_empty(len(images), grid[0] * grid[1]), seed=seed, ids=names, purpose="patch")
    return scores.topk(count, dim=1).indices


def fitting_patch(size: tuple[int, int]) -> int:
    """Default patch size of occlusions: 16 px for images of 112 px or more, about an eighth of smaller ones."""
    common = gcd(*size)
    if common % 16 == 0 and common >= 112:
        return 16
    wanted = common / (8 if common < 112 else 14)
    return min((d for d in range(1, common + 1) if common % d == 0), key=lambda d: (abs(d - wanted), d))


def check_grid(images: Tensor, patch_size: int) -> tuple[int, int]:
    """Rows and columns of patches; raises an error if they do not cover the image exactly."""
    height, width = images.shape[-2:]
    if height % patch_size or width % patch_size:
        raise HoldfastError(f"patch_size must divide the image, got {patch_size} for {height}×{width}")
    return height // patch_size, width // patch_size


def patch_region(chosen: Tensor, grid: tuple[int, int], images: Tensor) -> Tensor:
    """Mask of the pixels of the chosen patches, (B, 1, H, W)."""
    region = torch.zeros(len(chosen), grid[0] * grid[1], dtype=torch.bool, device=images.device)
    region = region.scatter(1, chosen, True).unflatten(1, (1, *grid))
    height, width = images.shape[-2:]
    return region.repeat_interleave(height // grid[0], dim=2).repeat_interleave(width // grid[1], dim=3)


def _gradient_size(
    model: nn.Module, images: Tensor, labels: Tensor, *, grid: tuple[int, int], weights: Tensor | float
) -> Tensor:
    """Σ|g| over the channels and pixels of each patch, up to a factor; Patch-Fool's "Saliency"."""
    points = images.detach().requires_grad_()
    logits = model(points)
    check_logits(logits, labels)
    check_differentiable(logits)
    (gradient,) = torch.autograd.grad(cross_entropy(logits.float(), labels).sum(), points)
    return nn.functional.adaptive_avg_pool2d((gradient * weights).abs().sum(dim=1), grid).flatten(1)
