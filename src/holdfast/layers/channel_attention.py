"""FAN's channel attention, which replaces the MLP of a transformer block.

Three designs over the same value path (FAN Table 6): ``eca`` (the published models), ``se`` and ``ca``.
"""

from collections.abc import Callable

import torch
from timm.layers import SqueezeExcite
from timm.models.xcit import LPI
from torch import Tensor, nn


def token_prototype_gate(query: Tensor, tokens: Tensor, *, heads: int, temperature: Tensor) -> Tensor:
    """One gate per channel, from the agreement of its query with its head's token prototype: (B, N, C) → (B, C).

    FAN Eq. 7, as released: query and tokens are softmaxed over the tokens *before* the prototype is averaged, there is
    no 1/√n, and the temperature multiplies after the sigmoid. So a gate lies in (0.5, 0.731] times the temperature.
    """
    prototype = tokens.softmax(dim=1).unflatten(-1, (heads, -1)).mean(dim=-1, keepdim=True)  # B N h 1
    agreement = (query.softmax(dim=1).unflatten(-1, (heads, -1)) * prototype).sum(dim=1)  # B h d
    return (temperature.flatten(1) * agreement.sigmoid()).flatten(1)


class ChannelMlp(nn.Module):
    """The value path: expand, mix neighbours by two depthwise convolutions, project back.

    FAN, as released: no activation on the main path, the only GELU is between the depthwise convolutions. FAN-Swin has
    no residual around them (``residual=False``).
    """

    def __init__(self, dim: int, hidden: int, *, residual: bool = True) -> None:
        super().__init__()
        self.residual = residual
        self.fc1 = nn.Linear(dim, hidden)
        self.dwconv = LPI(hidden)
        self.gamma = nn.Parameter(torch.ones(hidden))  # 1 as released: the branch is fully active from the first step
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        """Tokens (B, N, C) of a height × width grid → (B, N, C)."""
        wide = self.fc1(x)
        local = self.gamma * self.dwconv(wide, height, width)
        return self.fc2(wide + local if self.residual else local)


class EfficientChannelAttention(nn.Module):
    """Channel gates from token prototypes (FAN Eq. 7, ``eca``): linear in the number of channels."""

    def __init__(self, dim: int, heads: int, *, mlp_ratio: float = 4.0, residual: bool = True) -> None:
        super().__init__()
        self.heads = heads
        # multiplies after the sigmoid, whose argument lies in [0, 1]: only the temperature can take a gate out of
        # (0.5, 0.731]
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
        self.q = nn.Linear(dim, dim)
        self.mlp_v = ChannelMlp(dim, int(dim * mlp_ratio), residual=residual)
        self.norm_v = nn.LayerNorm(dim)  # eps 1e-5 as released, while the block's own norms have 1e-6

    def gate(self, x: Tensor) -> Tensor:
        """The gates of the channels of ``x``, (B, C)."""
        return token_prototype_gate(self.q(x), x, heads=self.heads, temperature=self.temperature)

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        """Tokens (B, N, C) → gated values (B, N, C)."""
        return self.norm_v(self.mlp_v(x, height, width)) * self.gate(x).unsqueeze(1)


class ChannelSelfAttention(nn.Module):
    """Channels attend to channels (FAN Eq. 6, ``ca``): a C × C map, quadratic in the number of channels.

    No code was released for it; the value path and its norm are those of ``eca``, so that only the attention differs.
    """

    def __init__(self, dim: int, heads: int, *, mlp_ratio: float = 4.0, residual: bool = True) -> None:
        super().__init__()
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.mlp_v = ChannelMlp(dim, int(dim * mlp_ratio), residual=residual)
        self.norm_v = nn.LayerNorm(dim)

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        """Tokens (B, N, C) → values mixed across channels (B, N, C)."""
        scores = self.q(x).transpose(1, 2) @ self.k(x) * x.shape[1] ** -0.5  # B C C
        values = self.norm_v(self.mlp_v(x, height, width))
        return values @ scores.softmax(dim=-1).transpose(1, 2)


class SqueezeExciteMlp(nn.Module):
    """Squeeze-and-excitation after the value path (FAN Table 6, ``se``): gates from channel means over all tokens.

    The released model cannot run (its loop does not pass the grid); this is what it would compute.
    """

    def __init__(self, dim: int, heads: int, *, mlp_ratio: float = 4.0, residual: bool = True) -> None:
        super().__init__()
        self.mlp_v = ChannelMlp(dim, int(dim * mlp_ratio), residual=residual)
        self.se = SqueezeExcite(dim, rd_channels=dim // 4)

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        """Tokens (B, N, C) → gated values (B, N, C)."""
        values = self.mlp_v(x, height, width)
        as_map = values.transpose(1, 2).unflatten(2, (height, width))  # B C H W, channels last in memory
        return self.se(as_map).flatten(2).transpose(1, 2)


CHANNEL_ATTENTION: dict[str, Callable[..., nn.Module]] = {
    "eca": EfficientChannelAttention,
    "se": SqueezeExciteMlp,
    "ca": ChannelSelfAttention,
}
