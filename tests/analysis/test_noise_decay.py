"""Noise decay and significant eigenvalues, block by block."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.analysis.noise_decay import relative_change, significant_eigenvalues
from holdfast.errors import HoldfastError


def test_relative_change_equals_brute_force():
    clean, noisy = torch.randn(3, 4, 5), torch.randn(3, 4, 5)
    expected = [np.linalg.norm((noisy - clean)[i].numpy()) / np.linalg.norm(clean[i].numpy()) for i in range(3)]
    assert relative_change(clean, noisy).tolist() == pytest.approx(expected, rel=1e-5)
    assert relative_change(clean, clean).tolist() == [0, 0, 0]
    assert relative_change(clean, 3 * clean).tolist() == pytest.approx([2, 2, 2])
    with pytest.raises(HoldfastError, match=r"alike, got \(3, 4, 5\), \(3, 5, 4\)"):
        relative_change(clean, noisy.mT)


@pytest.mark.parametrize("shape", [(6, 20), (20, 6), (9, 9)])
def test_eigenvalues_are_those_of_the_token_affinity(shape):
    tokens = torch.randn(2, *shape) * torch.logspace(0, -3, shape[1])
    for image in range(2):
        values = np.linalg.eigvalsh((tokens[image].double() @ tokens[image].double().T).numpy())
        for epsilon in (1e-1, 1e-2, 1e-4):
            expected = int((values > epsilon * values.max()).sum())
            assert significant_eigenvalues(tokens, epsilon=epsilon)[image] == expected


@given(st.integers(1, 6), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_features_of_rank_k_have_k_significant_eigenvalues(rank, seed):
    generator = torch.Generator().manual_seed(seed)
    left, right = (torch.linalg.qr(torch.randn(1, size, rank, generator=generator)).Q for size in (16, 10))
    assert significant_eigenvalues(left @ right.mT, epsilon=1e-3).tolist() == [rank]


def test_epsilon_must_be_a_share():
    for epsilon in (0, 1, -0.5):
        with pytest.raises(HoldfastError, match="epsilon must lie between 0 and 1"):
            significant_eigenvalues(torch.randn(1, 4, 4), epsilon=epsilon)
