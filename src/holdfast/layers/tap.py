"""Token-aware average pooling (TAP) and the local poolings it was compared with (Guo et al., ICCV 2023, Table 1).

Each takes the tokens of a grid and returns as many; it stands in front of a block's attention.
"""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import HoldfastError, nearest


def dilated_mean(x: Tensor, dilation: int) -> Tensor:
    """Mean of the nine taps of a dilated 3×3 window around every place of a map (B, C, H, W); 0 is the identity.

    Taps beyond the border count as zeros, and the divisor is always nine. One depthwise convolution: nothing is copied.
    """
    if dilation == 0:
        return x
    channels = x.shape[1]
    ninths = x.new_full((channels, 1, 3, 3), 1 / 9)
    return F.conv2d(x, ninths, padding=dilation, dilation=dilation, groups=channels)


def window_mean(x: Tensor, kernel: int) -> Tensor:
    """Mean over a plain kernel × kernel window around every place, zeros beyond the border counted."""
    return F.avg_pool2d(x, kernel, stride=1, padding=kernel // 2)


class TokenAwarePooling(nn.Module):
    """Every token chooses how wide to look: a mix of means over windows of growing dilation (TAP).

    As released: the predictor is convolution, BatchNorm, convolution, softmax, without an activation or biases, and one
    set of weights per token serves all channels. ``multi_kernel`` grows the window instead of the dilation.
    """

    def __init__(self, dim: int, branches: int = 4, *, multi_kernel: bool = False) -> None:
        super().__init__()
        self.branches, self.multi_kernel = branches, multi_kernel
        self.proj = nn.Sequential(
            nn.Conv2d(dim, branches, 3, padding=1, bias=False),
            nn.BatchNorm2d(branches),
            nn.Conv2d(branches, branches, 3, padding=1, bias=False),
        )

    def weights(self, tokens: Tensor, height: int, width: int) -> Tensor:
        """How much every token takes from every branch, (B, branches, H, W), summing to one."""
        return self.proj(_as_map(tokens, height, width)).softmax(dim=1)

    def forward(self, tokens: Tensor, height: int, width: int) -> Tensor:
        """Tokens (B, N, C) of a height × width grid → (B, N, C)."""
        weights = self.weights(tokens, height, width)
        x = _as_map(tokens, height, width)
        pooled = weights[:, :1] * x
        for branch in range(1, self.branches):
            mean = window_mean(x, 2 * branch + 1) if self.multi_kernel else dilated_mean(x, branch)
            pooled.addcmul_(weights[:, branch : branch + 1], mean)
        return pooled.flatten(2).transpose(1, 2)


def near_identity(pooling: TokenAwarePooling, share: float = 0.98) -> TokenAwarePooling:
    """Start TAP so that every token takes at least ``share`` of itself: for weights that were trained without it.

    Ours: the predictor's norm begins at weight 0 with a bias that favours the identity, and its last convolution hands
    that bias on unchanged, also at the border. The norm's weight learns first, and everything behind it thereafter.
    """
    if pooling.branches == 1:
        return pooling
    parts: Any = pooling.proj
    _, norm, last = parts
    nn.init.zeros_(norm.weight)
    nn.init.zeros_(norm.bias)
    nn.init.constant_(norm.bias[:1], math.log(share / (1 - share) * (pooling.branches - 1)) + 1e-3)
    nn.init.dirac_(last.weight)
    return pooling


class AveragePooling(nn.Module):
    """The same plain window for every token."""

    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, tokens: Tensor, height: int, width: int) -> Tensor:
        """Tokens (B, N, C) of a height × width grid → (B, N, C)."""
        return window_mean(_as_map(tokens, height, width), self.kernel).flatten(2).transpose(1, 2)


class ConvPooling(nn.Module):
    """A dense convolution over neighbouring tokens, without bias."""

    def __init__(self, dim: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(dim, dim, kernel, padding=kernel // 2, bias=False)

    def forward(self, tokens: Tensor, height: int, width: int) -> Tensor:
        """Tokens (B, N, C) of a height × width grid → (B, N, C)."""
        return self.conv(_as_map(tokens, height, width)).flatten(2).transpose(1, 2)


def _as_map(tokens: Tensor, height: int, width: int) -> Tensor:
    return tokens.transpose(1, 2).unflatten(2, (height, width))  # B C H W, channels last in memory


def local_pooling(kind: str, dim: int, branches: int = 4) -> nn.Module:
    """A pooling by its name in ``LOCAL_POOLING``, for tokens of width ``dim``."""
    if kind not in LOCAL_POOLING:
        raise HoldfastError(
            f"kind of pooling must be one of {', '.join(LOCAL_POOLING)}, got {kind!r}{nearest(kind, LOCAL_POOLING)}"
        )
    if branches < 1:
        raise HoldfastError(f"branches must be at least 1, got {branches}")
    return LOCAL_POOLING[kind](dim, branches)


LOCAL_POOLING: dict[str, Callable[[int, int], nn.Module]] = {  # from (token width, branches)
    "tap": TokenAwarePooling,
    "tap-identity": lambda dim, branches: near_identity(TokenAwarePooling(dim, branches)),
    "tap-multi-kernel": lambda dim, branches: TokenAwarePooling(dim, branches, multi_kernel=True),
    "avgpool3": lambda dim, branches: AveragePooling(3),
    "avgpool5": lambda dim, branches: AveragePooling(5),
    "conv3": lambda dim, branches: ConvPooling(dim, 3),
    "conv5": lambda dim, branches: ConvPooling(dim, 5),
}
