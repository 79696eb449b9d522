"""Noise2Net: distorts images with a small network of new random weights; DeepAugment without pretrained networks.

After Hendrycks et al., *The Many Faces of Robustness*, 2021: residual multi-scale blocks, drawn anew for every batch.
The widths inside the blocks are ours.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import HoldfastError
from holdfast.methods.loss_terms import Context, ForwardPass, Term, Views, from_options

BLOCKS, SCALES, WIDTH = 4, 4, 4
STRENGTH = (0.375, 0.75)


def noise2net(images: Tensor, *, share: float = 0.5, low: Tensor | float, high: Tensor | float) -> Tensor:
    """Distort the first ``share`` of a batch of normalised images: x ← x + ε · block(x), four times.

    ε is uniform in [0.375, 0.75); kernels are 1 or 3 wide, dilations 1 to 3. The result is clamped to [low, high], the
    normalised values of 0 and 1. Draws from torch's global generator.
    """
    count = round(share * len(images))
    distorted = images[:count]
    with torch.no_grad():
        for _ in range(BLOCKS):
            strength = float(torch.empty(()).uniform_(*STRENGTH))
            distorted = distorted + strength * _random_block(distorted)
    bounds = [torch.as_tensor(bound, dtype=images.dtype, device=images.device) for bound in (low, high)]
    return torch.cat([torch.clamp(distorted, min=bounds[0], max=bounds[1]), images[count:]])


def _random_block(x: Tensor) -> Tensor:
    """A Res2Net-like block with new random weights, (B, C, H, W) → (B, C, H, W); each scale also gets the previous."""
    channels = x.shape[1]
    scales = F.gelu(F.conv2d(x, _weights(SCALES * WIDTH, channels, 1, x))).chunk(SCALES, dim=1)
    outputs = [scales[0]]
    for scale in scales[1:]:
        kernel = 1 + 2 * int(torch.randint(2, ()))
        dilation = 1 + int(torch.randint(3, ()))
        weights = _weights(WIDTH, WIDTH, kernel, x)
        outputs.append(
            F.gelu(F.conv2d(scale + outputs[-1], weights, padding=dilation * (kernel // 2), dilation=dilation))
        )
    return F.conv2d(torch.cat(outputs, dim=1), _weights(channels, SCALES * WIDTH, 1, x))


def _weights(out_channels: int, in_channels: int, kernel: int, like: Tensor) -> Tensor:
    weights = torch.empty(out_channels, in_channels, kernel, kernel)
    # preserves the variance, so that ε sets the strength of the distortion for any kernel size
    return nn.init.kaiming_normal_(weights, nonlinearity="linear").to(like)


@dataclass(frozen=True)
class Noise2Net(Term):
    """Distorts a fraction of each batch before any other term sees it.

    Attributes:
        share: fraction of the batch, from 0 to 1.
    """

    share: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise HoldfastError(f"noise2net_share must lie between 0 and 1, got {self.share}")

    def prepare(self, images: Tensor, forward: ForwardPass) -> Views:
        """The images, a fraction of them distorted."""
        return (noise2net(images, share=self.share, **forward.setting.range) if self.share else images,)


def noise2net_term(share: Any, context: Context) -> Noise2Net:
    """Build the term from a recipe's option ``noise2net_share``."""
    return from_options(Noise2Net, "noise2net_share", {"share": share})
