"""AFAT's patch corruption model C, which scores the patches of an image for occlusion.

AFAT (Guo et al.), Sec. 3.1. Pure functions first; `Corruptor` has the two weights. methods/afat.py trains it.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from holdfast.errors import HoldfastError, first_line
from holdfast.models.backbone import check_image


def select_lowest(scores: Tensor, ratio: float) -> Tensor:
    """Mask of kept patches, (B, N): 0 for the fraction ``ratio`` of patches with the lowest scores of each image.

    AFAT, Sec. 3.1; as released: the threshold is the linearly interpolated quantile and ratios are taken modulo 1, so
    that a ratio of 0 or 1 occludes only the patch with the lowest score.
    """
    if not 0 <= ratio <= 1:
        raise HoldfastError(f"ratio must lie in [0, 1], got {ratio}")
    ordered, position = scores.detach().sort(dim=-1).values, (ratio % 1) * (scores.shape[-1] - 1)
    low = int(position)
    threshold = ordered[:, low].lerp(ordered[:, min(low + 1, scores.shape[-1] - 1)], position - low)
    return (scores.detach() > threshold.unsqueeze(-1)).to(scores.dtype)


class _KeepStraightThrough(torch.autograd.Function):
    """`select_lowest` with a straight-through gradient: the mask's gradient, clamped to [−1, 1], goes to the scores."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, ratio: float) -> Tensor:
        return select_lowest(scores, ratio)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # a mask entry's gradient is a sum over all pixels and channels of its patch (768 at 16×16): unclamped, a few
        # patches would dominate the update
        return gradient.clamp(-1, 1), None


def keep_straight_through(scores: Tensor, ratio: float) -> Tensor:
    """`select_lowest` with a straight-through gradient.

    AFAT, Sec. 3.1 (Hubara et al. 2016); as released: the gradient is clamped to [−1, 1], and not gated by the scores.
    """
    return _KeepStraightThrough.apply(scores, ratio)


def in_pixels(keep: Tensor, images: Tensor) -> Tensor:
    """Upsample a mask of patches, (B, 1, rows, columns), to the images' size, (B, 1, H, W)."""
    rows, columns = keep.shape[-2:]
    height, width = images.shape[-2:]
    if height % rows or width % columns:
        raise HoldfastError(f"images of {height}×{width} cannot be divided into a grid of {rows}×{columns} patches")
    return keep.repeat_interleave(height // rows, dim=-2).repeat_interleave(width // columns, dim=-1)


class Corruptor(nn.Module):
    """The corruption model C: scores = W · flatten(GELU(conv(x))), one score per patch.

    AFAT, Sec. 3.1; 39,184 weights for 14×14 patches of 16×16, and any other grid. It takes normalised images.
    """

    def __init__(self, grid: tuple[int, int] = (14, 14), *, patch_size: int = 16, channels: int = 3) -> None:
        super().__init__()
        if min(grid) < 1 or patch_size < 1:
            raise HoldfastError(f"grid and patch_size must be positive, got {tuple(grid)} and {patch_size}")
        self.grid = (int(grid[0]), int(grid[1]))
        self.patch_size = patch_size
        patches = self.grid[0] * self.grid[1]
        self.patch_embed = nn.Conv2d(channels, 1, patch_size, stride=patch_size, bias=False)
        self.act = nn.GELU()
        self.fc = nn.Linear(patches, patches, bias=False)

    def grid_of(self, images: Tensor) -> tuple[int, int]:
        """The rows and columns of patches, which are fixed."""
        return self.grid

    def forward(self, images: Tensor) -> Tensor:
        """One score per patch, (B, N); the lowest are occluded."""
        check_image(images, channels=self.patch_embed.in_channels, stride=self.patch_size)
        maps = self.act(self.patch_embed(images))  # B 1 rows columns
        if tuple(maps.shape[-2:]) != self.grid:
            expected = tuple(side * self.patch_size for side in self.grid)
            raise HoldfastError(
                f"images must be {expected[0]}×{expected[1]} for a corruptor of {self.grid[0]}×{self.grid[1]} patches, "
                f"got {images.shape[-2]}×{images.shape[-1]}"
            )
        return self.fc(maps.flatten(1))

    def keep(self, images: Tensor, ratio: float = 0.1) -> Tensor:
        """The mask of kept patches, (B, 1, rows, columns), with a straight-through gradient."""
        return keep_straight_through(self(images), ratio).unflatten(1, (1, *self.grid))


def save_corruptor(corruptor: nn.Module, path: str | Path) -> None:
    """Write the weights and the patch grid (none for a corruptor of any size) as one safetensors file."""
    model: Any = corruptor
    rows, columns = getattr(model, "grid", (0, 0))
    shape = {"rows": rows, "columns": columns, "patch_size": model.patch_size}
    weights = {key: value.detach().cpu().contiguous() for key, value in corruptor.state_dict().items()}
    # a single entry: safetensors writes several in arbitrary order, and equal weights should give equal files
    Path(path).write_bytes(save(weights, metadata={"corruptor": json.dumps(shape)}))


def load_corruptor(path: str | Path) -> Corruptor:
    """Read a file that `save_corruptor` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            weights = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
        shape = json.loads(metadata["corruptor"]) if "corruptor" in metadata else metadata
        rows, columns, patch_size = (int(shape[name]) for name in ("rows", "columns", "patch_size"))
        if not rows:
            raise ValueError("it is a convolutional one, for images of any size")
        channels, patches = weights["patch_embed.weight"].shape[1], rows * columns
        held = {key: tuple(value.shape) for key, value in weights.items()}
        # checked before anything is built: a file of 200 bytes could request any amount of memory
        if held != {"patch_embed.weight": (1, channels, patch_size, patch_size), "fc.weight": (patches, patches)}:
            raise ValueError(f"{rows}×{columns} patches of {patch_size} pixels, but weights {held}")
        corruptor = Corruptor((rows, columns), patch_size=patch_size, channels=channels)
        corruptor.load_state_dict(weights)
    except (OSError, SafetensorError, ValueError, TypeError, KeyError, IndexError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise HoldfastError(
            f"{str(path)!r} must be a file written by save_corruptor, but it is not ({reason})"
        ) from error
    return corruptor


WIDTH = 16
NEIGHBOURHOOD = 7  # patches per side that a score depends on


class ConvCorruptor(nn.Module):
    """Convolutional corruption model for any image size (ours): w · GELU(depthwise 7×7(GELU(conv(x)))) per patch.

    It has 13 k weights for patches of 16×16.
    """

    def __init__(self, *, patch_size: int = 16, channels: int = 3) -> None:
        super().__init__()
        if patch_size < 1:
            raise HoldfastError(f"patch_size must be positive, got {patch_size}")
        self.patch_size = patch_size
        self.patch_embed = nn.Conv2d(channels, WIDTH, patch_size, stride=patch_size, bias=False)
        self.near = nn.Conv2d(WIDTH, WIDTH, NEIGHBOURHOOD, padding=NEIGHBOURHOOD // 2, groups=WIDTH, bias=False)
        self.score = nn.Conv2d(WIDTH, 1, 1, bias=False)
        self.act = nn.GELU()

    def grid_of(self, images: Tensor) -> tuple[int, int]:
        """The rows and columns of patches of these images."""
        check_image(images, channels=self.patch_embed.in_channels, stride=self.patch_size)
        return images.shape[-2] // self.patch_size, images.shape[-1] // self.patch_size

    def forward(self, images: Tensor) -> Tensor:
        """One score per patch, (B, N); the lowest are occluded."""
        self.grid_of(images)
        return self.score(self.act(self.near(self.act(self.patch_embed(images))))).flatten(1)

    def keep(self, images: Tensor, ratio: float = 0.1) -> Tensor:
        """The mask of kept patches, (B, 1, rows, columns), with a straight-through gradient."""
        return keep_straight_through(self(images), ratio).unflatten(1, (1, *self.grid_of(images)))
