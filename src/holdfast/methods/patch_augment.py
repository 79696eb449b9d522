"""Patch-wise augmentation (RVT): every patch of a batch is cropped, flipped or made noisy on its own."""

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.errors import HoldfastError


def patch_augment(
    images: Tensor, *, patch_size: int = 16, probability: float = 0.1, low: Tensor | float, high: Tensor | float
) -> Tensor:
    """Normalised images with each patch resized-cropped, made noisy and mirrored, each with its own coin.

    RVT: crops of 85–100 % of the area, Gaussian noise of 0.01, horizontal flips; clamped to the range [low, high] that
    [0, 1] has in the images' space. Draws from torch's global generator.
    """
    batch, channels, height, width = images.shape
    if height % patch_size or width % patch_size:
        raise HoldfastError(f"images of {height}×{width} cannot be divided into patches of {patch_size} pixels")
    rows, columns = height // patch_size, width // patch_size
    patches = images.unflatten(3, (columns, patch_size)).unflatten(2, (rows, patch_size))
    patches = patches.permute(0, 2, 4, 1, 3, 5).reshape(-1, channels, patch_size, patch_size)  # B·rows·columns C p p

    def coin() -> Tensor:
        return (torch.rand(len(patches), device=images.device) < probability).view(-1, 1, 1, 1)

    patches = torch.where(coin(), _resized_crops(patches), patches)
    patches = torch.where(coin(), patches + 0.01 * torch.randn_like(patches), patches)
    patches = torch.where(coin(), patches.flip(-1), patches)
    patches = patches.reshape(batch, rows, columns, channels, patch_size, patch_size).permute(0, 3, 1, 4, 2, 5)
    augmented = patches.reshape(batch, channels, height, width)
    bounds = [torch.as_tensor(bound, dtype=images.dtype, device=images.device) for bound in (low, high)]
    return torch.clamp(augmented, min=bounds[0], max=bounds[1])


def _resized_crops(patches: Tensor) -> Tensor:
    """A random square of 85–100 % of each patch's area, enlarged to the patch."""
    count = len(patches)
    side = torch.empty(count, device=patches.device).uniform_(0.85, 1).sqrt()
    centre = (torch.rand(count, 2, device=patches.device) * 2 - 1) * (1 - side)[:, None]
    theta = torch.zeros(count, 2, 3, device=patches.device, dtype=patches.dtype)
    theta[:, 0, 0] = theta[:, 1, 1] = side
    theta[:, :, 2] = centre
    grid = F.affine_grid(theta, list(patches.shape), align_corners=False)
    return F.grid_sample(patches, grid, mode="bilinear", padding_mode="border", align_corners=False)
