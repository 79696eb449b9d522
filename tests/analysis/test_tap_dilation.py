"""Analysis of TAP: the mean dilation of each token in models with token-aware pooling."""

import torch

from holdfast.analysis.tap_dilation import mean_dilation


def test_mean_dilation_is_the_expected_branch():
    weights = torch.zeros(1, 4, 2, 2)
    weights[0, 0, 0, 0] = weights[0, 3, 0, 1] = 1
    weights[0, 1, 1] = weights[0, 2, 1] = 0.5
    assert mean_dilation(weights)[0].tolist() == [[0, 3], [1.5, 1.5]]
