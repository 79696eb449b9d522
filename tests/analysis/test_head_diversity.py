"""Head diversity: the mean cosine between the attention maps of a layer's heads."""

import itertools

import numpy as np
import pytest
import torch

from holdfast.analysis.head_diversity import head_similarity, mean_pairwise
from tests.analysis.handles import handle_of, random_handle
from tests.analysis.test_attention_stability import (
    CHUNKS,
    cosine,
)


@pytest.mark.parametrize("values", CHUNKS)
def test_head_similarity_equals_brute_force_whatever_the_chunk(values):
    handle = random_handle(heads=4, seed=6)
    found = head_similarity(handle, values=values)
    maps = handle.maps()
    for image, i, j in itertools.product(range(2), range(4), range(4)):
        assert found[image, i, j] == pytest.approx(cosine(maps[image, i], maps[image, j]), abs=1e-6)
    pairs = [cosine(maps[1, i], maps[1, j]) for i, j in itertools.combinations(range(4), 2)]
    assert mean_pairwise(found)[1] == pytest.approx(np.mean(pairs), abs=1e-6)


def test_equal_heads_are_alike_disjoint_heads_are_not_and_one_head_has_no_pair():
    one = random_handle(heads=1).maps()
    assert mean_pairwise(head_similarity(handle_of(one.expand(-1, 3, -1, -1)))).tolist() == pytest.approx([1, 1])
    apart = torch.stack([torch.eye(5)[[0] * 5], torch.eye(5)[[1] * 5]])[None]
    assert mean_pairwise(head_similarity(handle_of(apart))).item() == pytest.approx(0, abs=1e-6)
    assert mean_pairwise(head_similarity(handle_of(one))).isnan().all()
