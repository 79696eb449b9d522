"""Fourier positional encoding: sines of the row and the column, projected to the token width."""

import math

import torch
from torch import Tensor, nn


def fourier_code(
    height: int, width: int, *, hidden: int = 32, floor: bool = True, device: torch.device | None = None
) -> Tensor:
    """Sines and cosines of each grid position, shape (height, width, 2 · hidden), rows first.

    XCiT's encoding, as in FAN's classifiers. ``floor=False`` omits the rounding of i/2 in the frequencies, as in FAN's
    released segmentation and detection backbones, whose weights need it.
    """
    index = torch.arange(hidden, dtype=torch.float32, device=device)
    half = torch.div(index, 2, rounding_mode="floor") if floor else index / 2
    period = 10000 ** (2 * half / hidden)

    def axis_code(size: int) -> Tensor:
        position = torch.arange(1, size + 1, dtype=torch.float32, device=device) / (size + 1e-6) * 2 * math.pi
        angle = position[:, None] / period  # size hidden
        return torch.where(index % 2 == 0, angle.sin(), angle.cos())

    rows = axis_code(height)[:, None].expand(-1, width, -1)
    columns = axis_code(width)[None].expand(height, -1, -1)
    return torch.cat([rows, columns], dim=-1)


class FourierPosition(nn.Module):
    """Adds a learned projection of the Fourier encoding to the tokens of any grid."""

    def __init__(self, dim: int, *, hidden: int = 32, floor: bool = True) -> None:
        super().__init__()
        self.hidden, self.floor = hidden, floor
        self.token_projection = nn.Conv2d(2 * hidden, dim, kernel_size=1)

    def forward(self, tokens: Tensor, height: int, width: int) -> Tensor:
        """Tokens (B, N, C) of a height × width grid, plus their positional encoding."""
        weight = self.token_projection.weight
        code = fourier_code(height, width, hidden=self.hidden, floor=self.floor, device=weight.device).flatten(0, 1)
        position = nn.functional.linear(code.to(weight.dtype), weight.flatten(1), self.token_projection.bias)  # N C
        return tokens + position
