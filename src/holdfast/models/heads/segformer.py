"""SegFormer's all-MLP head (Xie et al., NeurIPS 2021) as in FAN and TAP+ADL, with folded linear layers.

Keys and results are the published ones, and so is the width of 768 for all sizes of FAN. ``conv_seg`` is left out: all
released files hold this convolution and no released code runs it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ConvNorm(nn.Module):
    """A convolution without bias and its batch norm, under mmcv's names."""

    def __init__(self, in_channels: int, channels: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, channels, kernel, padding=kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(channels)
        nn.init.kaiming_normal_(self.conv.weight, mode="fan_out", nonlinearity="relu")  # mmcv's ConvModule

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) → (B, C', H, W), after a ReLU."""
        return F.relu(self.bn(self.conv(x)), inplace=True)


class Projection(nn.Module):
    """Linear layer of one map, under its published name."""

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        self.proj = nn.Linear(in_channels, channels)


class SegFormerHead(nn.Module):
    """Projects each map linearly, resizes it to the finest one, concatenates coarsest first, and fuses."""

    classifier = "linear_pred"

    def __init__(self, channels: Sequence[int], classes: int, *, width: int = 768, dropout: float = 0.1) -> None:
        """Build the head.

        Args:
            channels: channels of the maps, fine to coarse.
            classes: number of classes.
            width: width of the linear layers; 768 in all released models.
            dropout: probability of dropping a channel before the classifier.
        """
        super().__init__()
        self.count = len(channels)
        for number, in_channels in enumerate(channels, start=1):
            setattr(self, f"linear_c{number}", Projection(in_channels, width))
        self.linear_fuse = ConvNorm(self.count * width, width, 1)
        self.dropout = nn.Dropout2d(dropout)
        self.linear_pred = nn.Conv2d(width, classes, 1)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """Maps (B, C_i, H_i, W_i), fine to coarse → logits (B, classes, H_1, W_1)."""
        fused = F.relu(self.linear_fuse.bn(self.fuse(maps)), inplace=True)
        return self.linear_pred(self.dropout(fused))

    def fuse(self, maps: Sequence[Tensor]) -> Tensor:
        """The input of the batch norm, (B, width, H_1, W_1).

        Everything up to there is linear, and bilinear weights sum to 1. So a map's linear layer and its columns of the
        fuse convolution are one matrix, applied at the map's own size; maps of equal size share one product and one
        resizing, and the biases are added once.
        """
        folded, finest = self.folded_layers(), maps[0].shape[-2:]
        of_size: dict[torch.Size, list[int]] = {}
        for number, x in enumerate(maps):
            of_size.setdefault(x.shape[-2:], []).append(number)
        bias: Tensor | None = torch.stack([part for _, part in folded]).sum(0)
        total: Tensor | None = None
        for size, numbers in of_size.items():
            weight = torch.cat([folded[number][0] for number in numbers], dim=1)[..., None, None]
            part = F.conv2d(torch.cat([maps[number] for number in numbers], dim=1), weight, bias)
            if size != finest:
                part = F.interpolate(part, size=finest, mode="bilinear", align_corners=False)
            total, bias = (
                part if total is None else total.add_(part),
                None,
            )  # in place: no other reference to the sum exists
        assert total is not None
        return total

    def folded_layers(self) -> list[tuple[Tensor, Tensor]]:
        """Each map's linear layer times its columns of the fuse convolution: (width, C_i) and (width,)."""
        columns = self.linear_fuse.conv.weight.flatten(1).chunk(self.count, dim=1)[::-1]  # coarsest first
        layers = [getattr(self, f"linear_c{number}").proj for number in range(1, self.count + 1)]
        return [(part @ layer.weight, part @ layer.bias) for part, layer in zip(columns, layers, strict=True)]
