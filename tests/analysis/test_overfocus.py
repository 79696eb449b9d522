"""Token overfocusing: whether few tokens receive most of the attention."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.analysis.overfocus import concentration, effective_number, overfocus, top_share
from holdfast.errors import HoldfastError
from tests.analysis.handles import handle_of, random_handle
from tests.analysis.test_attention_stability import CHUNKS


@pytest.mark.parametrize("values", CHUNKS)
def test_overfocusing_equals_brute_force_whatever_the_chunk(values):
    handle = random_handle(seed=5)
    found = overfocus(handle, top=3, values=values)
    for image, head in itertools.product(range(2), range(3)):
        a = handle.maps()[image, head].double().numpy()
        entropies = [-sum(p * np.log(p) for p in row if p > 0) for row in a]
        received = a.mean(axis=0)
        assert found.effective_tokens[image, head] == pytest.approx(np.exp(entropies).mean(), rel=1e-5)
        assert found.top_share[image, head] == pytest.approx(sorted(received)[-3:] @ np.ones(3), rel=1e-5)
        herfindahl = (sum(received**2) - 1 / 12) / (1 - 1 / 12)
        assert found.column_concentration[image, head] == pytest.approx(herfindahl, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize(
    ("name", "maps", "effective", "top_2", "concentrated"),
    [
        ("uniform", torch.full((1, 1, 8, 8), 1 / 8), 8, 2 / 8, 0),
        ("one-hot", torch.eye(8)[[3] * 8][None, None], 1, 1, 1),
        ("diagonal", torch.eye(8)[None, None], 1, 2 / 8, 0),
    ],
)
def test_known_maps(name, maps, effective, top_2, concentrated):
    found = overfocus(handle_of(maps), top=2)
    assert found.effective_tokens.item() == pytest.approx(effective, rel=1e-5)
    assert found.top_share.item() == pytest.approx(top_2, rel=1e-5)
    assert found.column_concentration.item() == pytest.approx(concentrated, abs=1e-6)


@given(st.integers(2, 30), st.integers(1, 40), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_overfocusing_stays_within_its_bounds(tokens, top, seed):
    weights = torch.randn(4, tokens, generator=torch.Generator().manual_seed(seed)).mul(4).softmax(-1).double()
    assert ((effective_number(weights) >= 1 - 1e-9) & (effective_number(weights) <= tokens + 1e-9)).all()
    assert ((top_share(weights, top) >= min(top, tokens) / tokens - 1e-6) & (top_share(weights, top) <= 1 + 1e-6)).all()
    assert ((concentration(weights) >= -1e-6) & (concentration(weights) <= 1 + 1e-6)).all()


def test_one_token_alone_has_everything():
    assert concentration(torch.ones(2, 1)).tolist() == [1, 1]
    with pytest.raises(HoldfastError, match="top must be at least 1, got 0"):
        overfocus(random_handle(), top=0)
