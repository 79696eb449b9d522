"""Token-aware average pooling (TAP) and the local poolings of its comparison (Guo et al., ICCV 2023, Table 1)."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.layers.tap import TokenAwarePooling, dilated_mean, local_pooling, window_mean


def brute_force_pool(tokens: torch.Tensor, pool: TokenAwarePooling, height: int, width: int) -> torch.Tensor:
    """TAP tap by tap: for every token and branch, the mean of nine dilated neighbours, zeros outside."""
    x = tokens.reshape(len(tokens), height, width, -1)
    weights = pool.proj(x.permute(0, 3, 1, 2)).softmax(dim=1)
    rows = []
    for r in range(height):
        for c in range(width):
            token = weights[:, 0, r, c, None] * x[:, r, c]
            for k in range(1, pool.branches):
                near = [(r + k * dr, c + k * dc) for dr in (-1, 0, 1) for dc in (-1, 0, 1)]
                inside = [x[:, i, j] for i, j in near if 0 <= i < height and 0 <= j < width]
                token = token + weights[:, k, r, c, None] * torch.stack(inside).sum(0) / 9
            rows.append(token)
    return torch.stack(rows, dim=1)


@given(
    batch=st.integers(1, 2),
    height=st.integers(1, 6),
    width=st.integers(1, 6),
    branches=st.integers(1, 5),
    seed=st.integers(0, 99),
)
@settings(max_examples=30, deadline=None)
def test_tap_equals_brute_force_in_values_and_gradients(batch, height, width, branches, seed):
    generator = torch.Generator().manual_seed(seed)
    pool = TokenAwarePooling(3, branches).double().eval()
    tokens = torch.randn(batch, height * width, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(batch, height * width, 3, generator=generator, dtype=torch.float64)
    ours, theirs = pool(tokens, height, width), brute_force_pool(tokens, pool, height, width)
    torch.testing.assert_close(ours, theirs)
    inputs = [tokens, *pool.parameters()]
    for a, b in zip(
        torch.autograd.grad((ours * direction).sum(), inputs, allow_unused=True),
        torch.autograd.grad((theirs * direction).sum(), inputs, allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_dilation_one_is_a_plain_average_pool():
    x = torch.randn(1, 2, 5, 7)
    torch.testing.assert_close(dilated_mean(x, 1), torch.nn.AvgPool2d(3, 1, 1)(x))
    torch.testing.assert_close(window_mean(x, 3), torch.nn.AvgPool2d(3, 1, 1)(x))
    assert dilated_mean(x, 0) is x


def test_weights_sum_to_one_per_token():
    pool = local_pooling("tap", 6, 4)
    weights = pool.weights(torch.randn(2, 12, 6), 3, 4)
    assert weights.shape == (2, 4, 3, 4)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(2, 3, 4))


@pytest.mark.parametrize("branches", [1, 2, 4])
def test_tap_can_start_near_the_identity_and_still_learns(branches):
    """98 % of every token is itself, in corners too; after one step all parts of the predictor have a gradient."""
    pool = local_pooling("tap-identity", 6, branches)
    tokens = torch.randn(3, 12, 6)
    assert (pool.weights(tokens, 3, 4)[:, 0] >= 0.98).all()
    if branches == 1:
        return
    optimizer = torch.optim.SGD(pool.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (pool(tokens, 3, 4) - tokens.roll(1, dims=1)).pow(2).mean().backward()
        optimizer.step()
    assert all(parameter.grad.abs().sum() > 0 for parameter in pool.parameters())
