"""Adapters and gates against the formulas written out token by token."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from holdfast.errors import HoldfastError
from holdfast.layers.tora_adapters import Adapter, AdapterGate, Fusion, PlaceGate, TokenGate


def awake(gate: Fusion) -> Fusion:
    """In double precision, with values: they are zero at the start."""
    torch.nn.init.normal_(gate.v.weight, std=0.3)
    torch.nn.init.normal_(gate.v.bias)
    torch.nn.init.normal_(gate.q.bias)
    return gate.double()


def tokens(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def brute_force(gate: Fusion, z, a, r, *, weights) -> tuple[torch.Tensor, torch.Tensor]:
    """o^A and o^R, query by query and head by head; ``weights`` makes G^A and G^R from the two score matrices."""
    acc, rob = [], []
    for image in range(len(z)):
        parts: tuple[list, list] = ([], [])
        for head in range(gate.heads):
            width = gate.q.out_features // gate.heads
            rows = slice(head * width, (head + 1) * width)
            q = z[image] @ gate.q.weight[rows].T + gate.q.bias[rows]
            keys = [x[image] @ gate.k.weight[rows].T for x in (a, r)]
            values = [x[image] @ gate.v.weight[rows].T + gate.v.bias[rows] for x in (a, r)]
            scores = [q @ k.T / width**0.5 for k in keys]
            for part, share, value in zip(parts, weights(*scores), values, strict=True):
                part.append(share @ value)
        acc.append(torch.cat(parts[0], dim=1))
        rob.append(torch.cat(parts[1], dim=1))
    return torch.stack(acc), torch.stack(rob)


def over_adapters(acc, rob):
    total = acc.exp() + rob.exp()
    return acc.exp() / total / acc.shape[1], rob.exp() / total / acc.shape[1]


def over_tokens(acc, rob):
    return acc.exp() / acc.exp().sum(1, keepdim=True), rob.exp() / rob.exp().sum(1, keepdim=True)


def at_the_own_place(acc, rob):
    own = torch.eye(len(acc), dtype=acc.dtype)
    return own * acc.exp() / (acc.exp() + rob.exp()), own * rob.exp() / (acc.exp() + rob.exp())


GATES = {AdapterGate: over_adapters, TokenGate: over_tokens, PlaceGate: at_the_own_place}


@pytest.mark.parametrize("kind", GATES)
@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 4),
    width=st.integers(1, 5),
    count=st.integers(1, 7),
    first_only=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_a_gate_equals_its_formula_in_values_and_gradients(kind, batch, heads, width, count, first_only, seed):
    torch.manual_seed(seed)
    dim = heads * width
    gate = awake(kind(dim, heads))
    queries = 1 if first_only else count
    places = queries if kind is PlaceGate else count
    z, a, r = tokens(batch, queries, dim), tokens(batch, places, dim), tokens(batch, places, dim)
    acc, rob = brute_force(gate, z, a, r, weights=GATES[kind])
    both, first = gate(z, a, r)
    torch.testing.assert_close(both, acc + rob)
    torch.testing.assert_close(first, acc[:, :1])

    direction, first_direction = torch.randn_like(both), torch.randn_like(first)
    inputs = [z, a, r, *gate.parameters()]
    ours = torch.autograd.grad((both * direction).sum() + (first * first_direction).sum(), inputs)
    theirs = torch.autograd.grad(((acc + rob) * direction).sum() + (acc[:, :1] * first_direction).sum(), inputs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", [AdapterGate, TokenGate])
def test_shares_are_the_first_querys_weights(kind):
    gate = awake(kind(12, 3))
    z, a, r = tokens(2, 5, 12), tokens(2, 5, 12), tokens(2, 5, 12)
    acc, rob = gate.shares(z, a, r)
    assert acc.shape == rob.shape == (2, 5)
    scores = [gate.split(gate.q(z)) @ gate.split(gate.k(x)).mT * gate.scale for x in (a, r)]
    normalised = torch.stack(scores).softmax(0) if kind is AdapterGate else torch.stack(scores).softmax(-1)
    torch.testing.assert_close(torch.stack([acc, rob]), normalised[:, :, :, 0].mean(dim=2))


def test_the_adapter_gate_holds_one_map_of_queries_and_tokens_for_the_backward_pass():
    gate = awake(AdapterGate(8, 2))
    z, a, r = (tokens(1, 50, 8) for _ in range(3))
    kept: set[int] = set()

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.numel() >= 50 * 50:
            kept.add(tensor.data_ptr())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        gate(z, a, r)
    assert len(kept) == 1


def test_an_adapter_is_the_identity_at_the_start_and_its_formula_later():
    adapter = Adapter(12, 3)
    x = torch.randn(2, 5, 12)
    assert torch.equal(adapter(x), x)
    torch.nn.init.normal_(adapter.up.weight)
    hidden = F.gelu(F.layer_norm(x, (12,)) @ adapter.down.weight.T + adapter.down.bias)
    torch.testing.assert_close(adapter(x), x + hidden @ adapter.up.weight.T)


def test_heads_that_do_not_divide_the_width_get_one_sentence():
    with pytest.raises(HoldfastError, match="gate_heads must divide the width 12, got 5"):
        AdapterGate(12, 5)
