"""Convolutional queries, keys and values: the attention of AFAT's ``*_afat`` training commands.

AFAT's evaluation commands use plain projections, and so do we; these layers exist to load such weights.
"""

from torch import Tensor, nn


class OverMap(nn.Sequential):
    """Layers of feature maps, applied to tokens."""

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:  # type: ignore[override]
        """Tokens (B, N, C) of a height × width grid → (B, N, C')."""
        as_map = x.transpose(1, 2).unflatten(2, (height, width))
        return super().forward(as_map).flatten(2).transpose(1, 2)


def rvt_conv_qkv(dim: int) -> OverMap:
    """3×3 convolution, ReLU, 1×1 convolution to 3C (RVT's ``attn.patch_reasoning``)."""
    return OverMap(nn.Conv2d(dim, dim // 4, 3, padding=1), nn.ReLU(), nn.Conv2d(dim // 4, 3 * dim, 1))


def fan_conv(dim: int) -> OverMap:
    """3×3 convolution and ReLU (FAN's ``attn.qkv``, in front of a linear ``attn.fc`` to 3C)."""
    return OverMap(nn.Conv2d(dim, dim // 4, 3, padding=1), nn.ReLU())
