"""Visual grouping: spectral clustering of a block's tokens."""

import numpy as np
import pytest
import torch

from holdfast.analysis import token_grouping
from holdfast.analysis.token_grouping import affinity, by_size, group_tokens, sample_grid
from holdfast.errors import HoldfastError


def test_groups_keep_their_colours_under_corruption():
    reference = np.array([[0, 0, 1], [2, 2, 1]])
    renamed = np.array([[2, 2, 0], [1, 1, 0]])
    assert token_grouping.same_names(renamed, reference).tolist() == reference.tolist()
    assert token_grouping.same_names(reference, reference).tolist() == reference.tolist()


def test_sampled_tokens_are_grouped_as_they_are_alone():
    tokens = torch.randn(4 * 8, 6, generator=torch.Generator().manual_seed(0))
    _, places = sample_grid((4, 8))
    np.testing.assert_array_equal(group_tokens(tokens[places.ravel()], clusters=2), group_tokens(tokens, clusters=2))


def test_affinity_is_the_self_correlation_of_softmaxed_tokens():
    tokens = torch.randn(5, 7)
    p = np.exp(tokens.double().numpy())
    p /= p.sum(axis=1, keepdims=True)
    assert affinity(tokens).numpy() == pytest.approx(p @ p.T, rel=1e-6)


@pytest.mark.parametrize("clusters", [2, 3, 4])
def test_planted_groups_are_found(clusters):
    generator = torch.Generator().manual_seed(1)
    truth = torch.randperm(60, generator=generator) % clusters
    tokens = 6 * torch.eye(16)[truth * 3] + 0.3 * torch.randn(60, 16, generator=generator)
    found = group_tokens(tokens, clusters=clusters)
    pairs = {(int(a), int(b)) for a, b in zip(truth, found, strict=True)}
    assert len(pairs) == clusters  # the same partition, up to names
    assert (found == group_tokens(tokens, clusters=clusters)).all()


def test_groups_are_numbered_by_size():
    assert by_size(np.array([7, 7, 2, 2, 2, 5])).tolist() == [1, 1, 0, 0, 0, 2]
    assert by_size(np.array([3, 1, 3, 1])).tolist() == [0, 1, 0, 1]


def test_grouping_of_448_pixels_has_784_tokens():
    groups = group_tokens(torch.randn(28 * 28, 64), clusters=5)
    assert groups.shape == (784,)
    assert set(groups) <= set(range(5))


def test_a_number_of_groups_must_fit_the_tokens():
    for clusters in (1, 9):
        with pytest.raises(HoldfastError, match=r"clusters must lie between 2 and the number of tokens \(8\)"):
            group_tokens(torch.randn(8, 4), clusters=clusters)
