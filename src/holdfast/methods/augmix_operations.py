"""The operations that AugMix chains, on batches: nine of Pillow's kind, none of them a corruption of ImageNet-C.

Colour, contrast, brightness and sharpness are left out, as published: ImageNet-C has corruptions of that kind. Images
are (B, 3, H, W) with whole numbers from 0 to 255 as floats; levels are (B,), up to 10. Area that comes from outside the
image is black.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

LEVELS = 10  # the highest level


def autocontrast(images: Tensor, levels: Tensor) -> Tensor:
    """Every channel stretched to 0…255."""
    values = images.double()
    low, high = values.amin(dim=(2, 3), keepdim=True), values.amax(dim=(2, 3), keepdim=True)
    scale = torch.full_like(low, 255) / (high - low).clamp(min=1)  # 255 / tensor would round twice
    stretched = (values * scale - low * scale).trunc().clamp(0, 255)
    return torch.where(high > low, stretched, values).to(images)


def equalize(images: Tensor, levels: Tensor) -> Tensor:
    """A uniform histogram in every channel."""
    values = images.flatten(0, 1).flatten(1).long()  # (B · 3, pixels)
    places = values + 256 * torch.arange(len(values), device=images.device).unsqueeze(1)
    counts = torch.bincount(places.flatten(), minlength=256 * len(values)).view(-1, 256)
    brightest = values.amax(dim=1, keepdim=True)
    step = (values.shape[1] - counts.gather(1, brightest)) // 255
    before = counts.cumsum(dim=1) - counts
    table = ((step // 2 + before) // step.clamp(min=1)).clamp(0, 255)
    table = torch.where(step > 0, table, torch.arange(256, device=images.device))
    return table.to(images).flatten()[places].view_as(images)


def posterize(images: Tensor, levels: Tensor) -> Tensor:
    """4 − int(4 · level / 10) bits are kept."""
    bits = 4 - (4 * levels / LEVELS).trunc()
    size = (2 ** (8 - bits)).view(-1, 1, 1, 1)
    return (images / size).floor() * size


def solarize(images: Tensor, levels: Tensor) -> Tensor:
    """Values from 256 − int(256 · level / 10) on are inverted."""
    threshold = (256 - (256 * levels / LEVELS).trunc()).view(-1, 1, 1, 1)
    return torch.where(images >= threshold, 255 - images, images)


def rotate(images: Tensor, levels: Tensor) -> Tensor:
    """By ± int(30 · level / 10) degrees about the centre."""
    angle = torch.deg2rad(_either_sign((30 * levels / LEVELS).trunc()))
    height, width = images.shape[2:]
    cos, sin = angle.cos(), angle.sin()
    right = width / 2 * (1 - cos) - height / 2 * sin
    down = height / 2 * (1 - cos) + width / 2 * sin
    return affine(images, torch.stack([cos, sin, right, -sin, cos, down], dim=1))


def shear_x(images: Tensor, levels: Tensor) -> Tensor:
    """By ± 0.3 · level / 10 along the rows, from the upper left corner."""
    return affine(images, _matrix(levels, 1, _either_sign(0.3 * levels / LEVELS)))


def shear_y(images: Tensor, levels: Tensor) -> Tensor:
    """By ± 0.3 · level / 10 along the columns, from the upper left corner."""
    return affine(images, _matrix(levels, 3, _either_sign(0.3 * levels / LEVELS)))


def translate_x(images: Tensor, levels: Tensor) -> Tensor:
    """By ± int(width / 3 · level / 10) pixels."""
    return affine(images, _matrix(levels, 2, _either_sign((images.shape[3] / 3 * levels / LEVELS).trunc())))


def translate_y(images: Tensor, levels: Tensor) -> Tensor:
    """By ± int(height / 3 · level / 10) pixels."""
    return affine(images, _matrix(levels, 5, _either_sign((images.shape[2] / 3 * levels / LEVELS).trunc())))


OPERATIONS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    autocontrast,
    equalize,
    posterize,
    rotate,
    solarize,
    shear_x,
    shear_y,
    translate_x,
    translate_y,
)


def affine(images: Tensor, matrices: Tensor) -> Tensor:
    """Sample at (a·x + b·y + c, d·x + e·y + f) of every pixel's centre, bilinear; ``matrices`` is (B, 6)."""
    height, width = images.shape[2:]
    a, b, c, d, e, f = (column.view(-1, 1, 1) for column in matrices.unbind(dim=1))
    y, x = torch.meshgrid(
        torch.arange(height, device=images.device) + 0.5, torch.arange(width, device=images.device) + 0.5, indexing="ij"
    )
    u, v = a * x + b * y + c, d * x + e * y + f
    grid = torch.stack([2 * u / width - 1, 2 * v / height - 1], dim=-1)
    sampled = F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)
    inside = (u >= 0) & (u < width) & (v >= 0) & (v < height)
    return (sampled + 1e-3).floor() * inside.unsqueeze(1)  # whole numbers, rounded down as Pillow does


def _matrix(like: Tensor, place: int, values: Tensor) -> Tensor:
    """The identity, with other values at one place."""
    matrices = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 0.0], device=like.device).repeat(len(like), 1)
    matrices[:, place] = values
    return matrices


def _either_sign(values: Tensor) -> Tensor:
    """Negative with probability ½, from torch's global generator."""
    return torch.where(torch.rand(len(values)).to(values.device) < 0.5, -values, values)
