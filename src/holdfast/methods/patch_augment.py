"""Patch-wise augmentation (RVT): crops, noise and flips for each patch of a batch independently."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.errors import HoldfastError
from holdfast.methods.loss_terms import Context, ForwardPass, Term, Views, from_options
from holdfast.methods.objective import Loss

Crops = Literal["released", "per-patch"]


def patch_augment(
    images: Tensor,
    *,
    patch_size: int = 16,
    probability: float = 0.1,
    crops: Crops = "released",
    low: Tensor | float,
    high: Tensor | float,
) -> Tensor:
    """Augment each patch of normalised images with a resized crop, Gaussian noise and a horizontal flip.

    RVT: crops of 85–100 % of the area, Gaussian noise of std 0.01, horizontal flips; the result is clamped to [low,
    high], the normalised values of 0 and 1. Noise and flips are decided for each patch. ``released`` crops are decided
    once for the whole batch and measure whole pixels (15 or 16 of 16); ``per-patch`` crops are decided for each patch
    and have any size. Draws from torch's global generator.
    """
    batch, channels, height, width = images.shape
    if height % patch_size or width % patch_size:
        raise HoldfastError(f"images of {height}×{width} cannot be divided into patches of {patch_size} pixels")
    rows, columns = height // patch_size, width // patch_size
    patches = images.unflatten(3, (columns, patch_size)).unflatten(2, (rows, patch_size))
    patches = patches.permute(0, 2, 4, 1, 3, 5).reshape(-1, channels, patch_size, patch_size)  # B·rows·columns C p p

    def coin() -> Tensor:
        return (torch.rand(len(patches), device=images.device) < probability).view(-1, 1, 1, 1)

    if crops == "per-patch":
        patches = torch.where(coin(), _resized_crops(patches), patches)
    # the release's library takes a crop's probability for the whole batch: all patches are cropped or none
    elif torch.rand(()) < probability:
        patches = resized_pixel_crops(patches)
    patches = torch.where(coin(), patches + 0.01 * torch.randn_like(patches), patches)
    patches = torch.where(coin(), patches.flip(-1), patches)
    patches = patches.reshape(batch, rows, columns, channels, patch_size, patch_size).permute(0, 3, 1, 4, 2, 5)
    augmented = patches.reshape(batch, channels, height, width)
    bounds = [torch.as_tensor(bound, dtype=images.dtype, device=images.device) for bound in (low, high)]
    return torch.clamp(augmented, min=bounds[0], max=bounds[1])


def _resized_crops(patches: Tensor) -> Tensor:
    """A random square of 85–100 % of each patch's area, resized to the patch."""
    side = _sides(patches)
    centre = (torch.rand(len(patches), 2, device=patches.device) * 2 - 1) * (1 - side)[:, None]
    return _sample(patches, side, centre, align_corners=False)


def resized_pixel_crops(patches: Tensor) -> Tensor:
    """The same in whole pixels with aligned corners, as in the release's library; a full-size crop is the identity."""
    pixels = patches.shape[-1]
    side = (_sides(patches) * pixels).round()
    start = (torch.rand(len(patches), 2, device=patches.device) * (pixels - side + 1)[:, None]).floor()
    steps = pixels - 1
    crops = _sample(patches, (side - 1) / steps, (2 * start + side[:, None] - 1) / steps - 1, align_corners=True)
    return torch.where((side < pixels).view(-1, 1, 1, 1), crops, patches)


def _sides(patches: Tensor) -> Tensor:
    return torch.empty(len(patches), device=patches.device).uniform_(0.85, 1).sqrt()


def _sample(patches: Tensor, side: Tensor, centre: Tensor, *, align_corners: bool) -> Tensor:
    """The square of relative ``side`` around ``centre`` (−1 to 1) of each patch, resized to the patch."""
    theta = torch.zeros(len(patches), 2, 3, device=patches.device, dtype=patches.dtype)
    theta[:, 0, 0] = theta[:, 1, 1] = side
    theta[:, :, 2] = centre
    grid = F.affine_grid(theta, list(patches.shape), align_corners=align_corners)
    return F.grid_sample(patches, grid, mode="bilinear", padding_mode="border", align_corners=align_corners)


@dataclass(frozen=True)
class PatchAugmentation(Term):
    """RVT's second cross-entropy, on patch-wise augmented images.

    Attributes:
        weight: factor in the objective.
        patch_size: pixels per patch side.
        probability: probability of each operation, per patch or (released crops) for all patches at once.
        crops: ``released``: all patches or none, in whole pixels; ``per-patch``: each on its own, of any size.
        discard_gradient: as released by RVT and RSPC: the augmented pass updates BatchNorm's statistics and nothing
            else; with AFAT its batch is joint as well.
    """

    weight: float = 1.0
    patch_size: int = 16
    probability: float = 0.1
    crops: Crops = "released"
    discard_gradient: bool = False

    def __post_init__(self) -> None:
        if self.crops not in Crops.__args__:  # type: ignore[attr-defined]
            raise HoldfastError(f"crops of patches must be 'released' or 'per-patch', got {self.crops!r}")

    def prepare(self, images: Tensor, forward: ForwardPass) -> Views:
        """Run the augmented images in a separate pass, before all others as released, and store its loss."""
        augmented = patch_augment(
            images,
            patch_size=self.patch_size,
            probability=self.probability,
            crops=self.crops,
            **forward.setting.range,
        )
        forward.keep(self, self._loss(augmented, forward))
        return (images,)

    def _loss(self, augmented: Tensor, forward: ForwardPass) -> Tensor:
        if not self.discard_gradient:
            return forward.setting.task_loss(forward.model(augmented), forward.targets)
        # the released loops call zero_grad between the two backward passes: only BatchNorm's statistics remain of this
        # pass. RSPC occludes these images as well, so BatchNorm sees both halves
        with torch.no_grad():
            outputs = forward.model(forward.show_after(self, augmented))
            return forward.setting.task_loss(outputs[-len(augmented) :], forward.targets)

    def loss(self, forward: ForwardPass) -> Loss:
        """The weighted loss of the augmented images."""
        loss = forward.kept(self)
        return Loss(self.weight * loss, {"patch_cross_entropy": loss.detach()})


def patches_term(options: Any, context: Context) -> PatchAugmentation:
    """Build the term from a recipe's option ``patches``."""
    return from_options(PatchAugmentation, "patches", options)
