"""Token-aware average pooling (TAP) and the local poolings of its comparison (Guo et al., ICCV 2023, Table 1).

Each maps the tokens of a grid to as many tokens; it is applied before a block's attention.
"""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import HoldfastError, nearest


def dilated_mean(x: Tensor, dilation: int) -> Tensor:
    """Mean of the nine taps of a dilated 3×3 window around each position of a map (B, C, H, W); 0 is the identity.

    Taps beyond the border count as zeros, and the divisor is always nine, as released (count_include_pad). Computed as
    one depthwise convolution instead of the released unfold, which copies the map nine times.
    """
    if dilation == 0:
        return x
    channels = x.shape[1]
    ninths = x.new_full((channels, 1, 3, 3), 1 / 9)
    return F.conv2d(x, ninths, padding=dilation, dilation=dilation, groups=channels)


def window_mean(x: Tensor, kernel: int) -> Tensor:
    """Mean over a kernel × kernel window around each position, with zeros beyond the border."""
    return F.avg_pool2d(x, kernel, stride=1, padding=kernel // 2)


class TokenAwarePooling(nn.Module):
    """TAP: each token predicts the weights of a sum of average poolings with increasing dilation.

    As released: the predictor is convolution, BatchNorm, convolution, softmax, without activation or biases, and all
    channels of a token share its weights. ``multi_kernel`` increases the window instead of the dilation.
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
        """The weight of each branch for each token, (B, branches, H, W), summing to one."""
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
    """Initialise TAP so that each token keeps a weight of at least ``share``: for weights trained without TAP.

    Ours: the predictor's norm starts with weight 0 and a bias that favours the identity, and its last convolution
    passes that bias on unchanged, also at the border. The norm's weight gets a gradient first, the layers before it
    afterwards.
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
    """Average pooling with the same window for all tokens."""

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
