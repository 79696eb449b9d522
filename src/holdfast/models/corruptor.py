"""AFAT's patch corruption model C: it reads an image and says which patches to occlude.

AFAT (Guo et al.), Eq. 1. Pure functions first; `Corruptor` owns the two weights.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from holdfast.errors import HoldfastError
from holdfast.models.backbone import check_image


def select_lowest(scores: Tensor, ratio: float) -> Tensor:
    """1 where a patch is kept, 0 where it is occluded: the lowest-scored share ``ratio`` of every row, (B, N).

    AFAT, Sec. 3.1; as released: the threshold is the linearly interpolated quantile and ratios are taken modulo 1, so
    that a ratio of 0 or 1 occludes the lowest patch alone.
    """
    if not 0 <= ratio <= 1:
        raise HoldfastError(f"ratio must lie in [0, 1], got {ratio}")
    ordered, position = scores.detach().sort(dim=-1).values, (ratio % 1) * (scores.shape[-1] - 1)
    low = int(position)
    threshold = ordered[:, low].lerp(ordered[:, min(low + 1, scores.shape[-1] - 1)], position - low)
    return (scores.detach() > threshold.unsqueeze(-1)).to(scores.dtype)


class _KeepStraightThrough(torch.autograd.Function):
    """`select_lowest` forward; backward, the mask's gradient goes to the scores, each entry clamped to [−1, 1]."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, ratio: float) -> Tensor:
        return select_lowest(scores, ratio)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.clamp(-1, 1), None


def keep_straight_through(scores: Tensor, ratio: float) -> Tensor:
    """`select_lowest` with a straight-through gradient.

    AFAT, Sec. 3.1 (Hubara et al. 2016); as released: the gradient is clamped to [−1, 1], and not gated by the scores.
    """
    return _KeepStraightThrough.apply(scores, ratio)


def occlude(images: Tensor, keep: Tensor, noise: Tensor, *, low: Tensor | float, high: Tensor | float) -> Tensor:
    """Replace the patches that are not kept by noise: clamp(x ⊙ M + δ ⊙ (1 − M), low, high).

    AFAT, Eq. 1. ``keep`` is (B, 1, rows, columns), 1 = keep, and is enlarged to the images' size; ``low`` and ``high``
    are the values that 0 and 1 have in the space of ``images``.
    """
    rows, columns = keep.shape[-2:]
    height, width = images.shape[-2:]
    if height % rows or width % columns:
        raise HoldfastError(f"images of {height}×{width} cannot be divided into a grid of {rows}×{columns} patches")
    mask = keep.repeat_interleave(height // rows, dim=-2).repeat_interleave(width // columns, dim=-1)  # B 1 H W
    return torch.clamp(images * mask + noise * (1 - mask), min=_tensor(low, images), max=_tensor(high, images))


def alignment(corrupted: list[Tensor], clean: list[Tensor]) -> Tensor:
    """How far the blocks' features moved: the blocks' mean squared errors, averaged.

    AFAT, Eq. 2; as released: the element mean rather than the squared norm, and a denominator of L + 1e-4.
    """
    if len(corrupted) != len(clean) or not clean:
        raise HoldfastError(f"alignment needs the same blocks twice, got {len(corrupted)} and {len(clean)} features")
    return mean_error(block_errors(corrupted, clean))


def block_errors(corrupted: list[Tensor], clean: list[Tensor]) -> list[Tensor]:
    """The mean squared error of every block's features; neither side is detached."""
    return [nn.functional.mse_loss(a, b) for a, b in zip(corrupted, clean, strict=True)]


def mean_error(errors: list[Tensor]) -> Tensor:
    """The released denominator: L + 1e-4."""
    return torch.stack(errors).sum() / (len(errors) + 1e-4)


class Corruptor(nn.Module):
    """The corruption model C: scores = W · flatten(GELU(conv(x))), one score per patch.

    AFAT, Sec. 3.1; 39,184 weights for 14×14 patches of 16×16, and any other grid. It reads normalised images.
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

    def forward(self, images: Tensor) -> Tensor:
        """One score per patch, (B, N); the lowest are to be occluded."""
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


def save_corruptor(corruptor: Corruptor, path: str | Path) -> None:
    """Write the weights and the grid they belong to as one safetensors file."""
    shape = {"rows": corruptor.grid[0], "columns": corruptor.grid[1], "patch_size": corruptor.patch_size}
    weights = {key: value.detach().cpu().contiguous() for key, value in corruptor.state_dict().items()}
    # a single entry: safetensors writes several in any order, and equal weights should be equal files
    Path(path).write_bytes(save(weights, metadata={"corruptor": json.dumps(shape)}))


def load_corruptor(path: str | Path) -> Corruptor:
    """Read what `save_corruptor` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            weights = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
        shape = json.loads(metadata["corruptor"]) if "corruptor" in metadata else metadata
        rows, columns, patch_size = (int(shape[name]) for name in ("rows", "columns", "patch_size"))
        channels, patches = weights["patch_embed.weight"].shape[1], rows * columns
        held = {key: tuple(value.shape) for key, value in weights.items()}
        # before anything is built: a file of 200 bytes could ask for any amount of memory
        if held != {"patch_embed.weight": (1, channels, patch_size, patch_size), "fc.weight": (patches, patches)}:
            raise ValueError(f"{rows}×{columns} patches of {patch_size} pixels, but weights {held}")
        corruptor = Corruptor((rows, columns), patch_size=patch_size, channels=channels)
        corruptor.load_state_dict(weights)
    except (OSError, SafetensorError, ValueError, TypeError, KeyError, IndexError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or (str(error).splitlines() or [""])[0]
        raise HoldfastError(
            f"{str(path)!r} must be a corruptor's file (save_corruptor); it is none ({reason})"
        ) from error
    return corruptor


def _tensor(bound: Tensor | float, like: Tensor) -> Tensor:
    return torch.as_tensor(bound, dtype=like.dtype, device=like.device)
