"""The two ConvNeXt stages of FAN-Hybrid's patch embedding: timm's blocks, channels-last throughout."""

from functools import partial

import torch
from timm.layers import LayerNorm2d, trunc_normal_
from timm.models.convnext import ConvNeXtBlock
from torch import Tensor, nn
from torch.nn import functional as F

TRUNK_DIMS = (128, 256)


class SampleVarianceNorm2d(LayerNorm2d):
    """LayerNorm over channels that divides the variance by C − 1 instead of C.

    As released: on channels-last maps the trunk's norm computed the sample variance, and everything after the stem is
    channels-last. The published weights were trained with it; for C = 128 it changes features by 0.4 %.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) → the same."""
        return self.over_last_axis(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def over_last_axis(self, x: Tensor) -> Tensor:
        """Normalise (…, C) over the last axis: the library's LayerNorm with weight and eps rescaled."""
        correction = (x.shape[-1] - 1) / x.shape[-1]
        return F.layer_norm(x, self.normalized_shape, self.weight * correction**0.5, self.bias, self.eps * correction)


class TrunkBlock(ConvNeXtBlock):
    """timm's block with the published 1×1-convolution weights, computed as matrix products.

    On a channels-last map a 1×1 convolution is a linear layer over the last axis; computing it so saves the layout
    changes of the published trunk at every norm.
    """

    def __init__(self, dim: int) -> None:
        # layer scale 1e-6 as in ConvNeXt, while the FAN blocks above start at 1
        super().__init__(dim, conv_mlp=True, norm_layer=partial(SampleVarianceNorm2d, eps=1e-6), ls_init_value=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W), channels last in memory → the same."""
        y = self.conv_dw(x).permute(0, 2, 3, 1)  # B H W C
        if torch.is_grad_enabled() or x.device.type != "cpu" or torch.compiler.is_compiling():
            return self._add_mlp(x, y)
        # image by image, the expanded map stays in the processor's cache: the same bits in three quarters of the time
        out = torch.empty_like(x)
        for image in range(len(x)):
            self._add_mlp(x[image], y[image], out=out[image])
        return out

    def _add_mlp(self, x: Tensor, y: Tensor, out: Tensor | None = None) -> Tensor:
        """x (…, C, H, W) plus the MLP of y (…, H, W, C)."""
        y = self.norm.over_last_axis(y)
        y = F.gelu(F.linear(y, self.mlp.fc1.weight.flatten(1), self.mlp.fc1.bias))
        y = F.linear(y, self.mlp.fc2.weight.flatten(1), self.mlp.fc2.bias)
        return torch.addcmul(x, self.gamma.view(-1, 1, 1), y.movedim(-1, -3), out=out)


class TrunkStage(nn.Module):
    """Blocks of one resolution, after a norm and a strided convolution if the resolution changes."""

    def __init__(self, in_dim: int, dim: int, *, depth: int, downsample: bool) -> None:
        super().__init__()
        self.downsample: nn.Module = nn.Identity()
        if downsample:
            self.downsample = nn.Sequential(SampleVarianceNorm2d(in_dim, eps=1e-6), nn.Conv2d(in_dim, dim, 2, stride=2))
        self.blocks = nn.Sequential(*(TrunkBlock(dim) for _ in range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) → (B, C', H', W')."""
        return self.blocks(self.downsample(x))


class ConvNeXtTrunk(nn.Module):
    """Stem and two stages without final norm; drop-path is 0 here for any rate of the transformer (as released)."""

    def __init__(
        self,
        in_chans: int = 3,
        *,
        depths: tuple[int, int] = (3, 3),
        dims: tuple[int, int] = TRUNK_DIMS,
        stem_stride: int = 4,
    ) -> None:
        super().__init__()
        self.dims = dims
        self.strides = (stem_stride, 2 * stem_stride)
        self.stem = nn.Sequential(
            nn.Conv2d(in_chans, dims[0], stem_stride, stride=stem_stride), LayerNorm2d(dims[0], eps=1e-6)
        )
        self.stages = nn.ModuleList(
            [
                TrunkStage(dims[0], dims[0], depth=depths[0], downsample=False),
                TrunkStage(dims[0], dims[1], depth=depths[1], downsample=True),
            ]
        )
        self.apply(_init_convolution)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Images (B, 3, H, W) → the two stages' maps, coarsest last."""
        x = self.stem(x.contiguous(memory_format=torch.channels_last))
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps


def _init_convolution(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
