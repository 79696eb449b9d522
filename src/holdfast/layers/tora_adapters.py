"""Adapters and the gates that fuse an accuracy and a robustness adapter (TORA-ViT, Li and Xu, CVPR 2023).

The authors published slides and no code. The slides specify adapters after each block's MLP, queries from the block,
keys and values from the adapters, and a softmax over the adapters. The rest (see docs/tora.md) is our derivation.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import HoldfastError


class Adapter(nn.Module):
    """Bottleneck adapter ψ(x) = x + W_up · GELU(W_down · LayerNorm(x)), initially the identity (W_up = 0)."""

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.down = nn.Linear(dim, width)
        self.up = _zeros(nn.Linear(width, dim))

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (B, N, D) → (B, N, D)."""
        return tokens + self.up(F.gelu(self.down(self.norm(tokens))))


class Fusion(nn.Module):
    """Base class of gates: queries from the block, keys and values from both adapters; values are initially zero.

    Keys have no bias, since it would cancel in every softmax below.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        if heads < 1 or dim % heads:
            raise HoldfastError(f"gate_heads must divide the width {dim}, got {heads}")
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim, bias=False)
        self.v = _zeros(nn.Linear(dim, dim))

    def split(self, x: Tensor) -> Tensor:
        """Split heads: (B, N, D) → (B, h, N, d)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def merge(self, x: Tensor) -> Tensor:
        """Merge heads: (B, h, N, d) → (B, N, D)."""
        return x.transpose(1, 2).flatten(2)

    def forward(self, z: Tensor, a: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """The update of the block's tokens z (B, M, D) from the adapters' tokens a and r (B, N, D).

        Returns the sum o^A + o^R, (B, M, D), and the part o^A for the first token, (B, 1, D).
        """
        raise NotImplementedError

    def shares(self, z: Tensor, a: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """The first query's weights of each adapter's tokens, mean over heads, (B, N) each."""
        raise NotImplementedError


class AdapterGate(Fusion):
    r"""TORA's gate: each query weighs the two adapters against each other at each token.

    G^m_ij = exp S^m_ij / (exp S^A_ij + exp S^R_ij),  o^m_i = 1/N Σ_j G^m_ij v^m_j

    Over two adapters this softmax is the sigmoid of S^A − S^R = q·W_k(a − r), and with G^R = 1 − G^A the sum of both
    outputs is 1/N Σ_j G^A_ij W_v(a_j − r_j) + W_v r̄ + b: keys and values of the difference suffice, and one map of
    queries × tokens. The 1/N is ours, because a row of G^A + G^R sums to N.
    """

    def forward(self, z: Tensor, a: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """The update and its o^A part, see `Fusion.forward`."""
        difference, count = a - r, a.shape[1]
        gate = self._gate(z, difference)  # B h M N
        values = self.split(F.linear(difference, self.v.weight))  # B h N d
        both = self.merge(gate @ values) / count + self.v(r.mean(dim=1, keepdim=True))
        return both, self._first(gate[:, :, 0] / count, a)

    def shares(self, z: Tensor, a: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """The first query's weights, see `Fusion.shares`; the two sum to one at each token."""
        gate = self._gate(z[:, :1], a - r).squeeze(2).mean(dim=1)
        return gate, 1 - gate

    def _gate(self, z: Tensor, difference: Tensor) -> Tensor:
        scores = self.split(self.q(z) * self.scale) @ self.split(self.k(difference)).transpose(-2, -1)
        return scores.sigmoid()

    def _first(self, weights: Tensor, a: Tensor) -> Tensor:
        """Σ_j weights_hj v^A_j of one query with weights (B, h, N); pooled before it is projected."""
        pooled = weights @ a  # B h D
        weight, bias = self.v.weight.unflatten(0, (self.heads, -1)), self.v.bias.unflatten(0, (self.heads, -1))
        values = torch.einsum("bhc,hdc->bhd", pooled, weight) + weights.sum(dim=-1, keepdim=True) * bias
        return values.flatten(1).unsqueeze(1)


class TokenGate(Fusion):
    """Gate with a softmax over the tokens of each adapter separately, the other form in the slides' comparison."""

    def forward(self, z: Tensor, a: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """The update and its o^A part, see `Fusion.forward`."""
        q = self.split(self.q(z))
        acc, rob = (
            self.merge(F.scaled_dot_product_attention(q, self.split(self.k(x)), self.split(self.v(x)))) for x in (a, r)
        )
        return acc + rob, acc[:, :1]

    def shares(self, z: Tensor, a: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """The first query's weights, see `Fusion.shares`; each sums to one over the tokens."""
        q = self.split(self.q(z[:, :1])) * self.scale
        acc, rob = ((q @ self.split(self.k(x)).transpose(-2, -1)).softmax(-1).squeeze(2).mean(1) for x in (a, r))
        return acc, rob


class PlaceGate(Fusion):
    """AdapterFusion (Pfeiffer et al., EACL 2021): a token weighs the two adapters' outputs for itself only."""

    def forward(self, z: Tensor, a: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """The update and its o^A part, see `Fusion.forward`; needs as many adapter tokens as queries."""
        gate = self._gate(z, a, r)  # B h N 1
        acc, rob = gate * self.split(self.v(a)), (1 - gate) * self.split(self.v(r))
        return self.merge(acc + rob), self.merge(acc[:, :, :1])

    def shares(self, z: Tensor, a: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """Each token's own weights, mean over heads, (B, N) each; the two sum to one."""
        gate = self._gate(z, a, r).squeeze(-1).mean(dim=1)
        return gate, 1 - gate

    def _gate(self, z: Tensor, a: Tensor, r: Tensor) -> Tensor:
        scores = self.split(self.q(z)) * self.split(self.k(a - r))
        return (scores.sum(dim=-1, keepdim=True) * self.scale).sigmoid()


def _zeros(linear: nn.Linear) -> nn.Linear:
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
