"""SETR's progressive upsampling head (Zheng et al., CVPR 2021), which FAN's paper uses with FAN-ViT.

The classes were released, a configuration for FAN-ViT was not: the form without auxiliary heads is our reading.
"""

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.models.heads.segformer import ConvNorm

STEPS = 4


class SETRHead(nn.Module):
    """LayerNorm of the last map, then four convolutions with 2× upsampling."""

    classifier = "conv_seg"

    def __init__(self, channels: Sequence[int], classes: int, *, width: int = 256, dropout: float = 0.0) -> None:
        """Build the head.

        Args:
            channels: channels of the maps, fine to coarse; only the last map is used.
            classes: number of classes.
            width: width of the convolutions.
            dropout: probability of dropping a channel before the classifier; 0 as released.
        """
        super().__init__()
        self.norm = nn.LayerNorm(channels[-1], eps=1e-6)
        widths = [channels[-1], *[width] * (STEPS - 1)]
        self.up_convs = nn.ModuleList([nn.Sequential(ConvNorm(in_width, width, 3)) for in_width in widths])
        self.dropout = nn.Dropout2d(dropout)
        self.conv_seg = nn.Conv2d(width, classes, 1)
        nn.init.normal_(self.conv_seg.weight, std=0.01)
        nn.init.zeros_(self.conv_seg.bias)  # type: ignore[arg-type]

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """Maps (B, C_i, H_i, W_i) → logits (B, classes, 16 H_n, 16 W_n)."""
        x = self.norm(maps[-1].movedim(1, -1)).movedim(-1, 1)
        double = partial(F.interpolate, scale_factor=2.0, mode="bilinear", align_corners=False)
        for convolution in self.up_convs:
            x = double(convolution(x))
        return self.conv_seg(self.dropout(x))
