"""Visual grouping: which tokens of a block belong together.

FAN (Zhou et al., ICML 2022), Fig. 1, 4, 9 and App. A.6: tokens through a softmax, their self-correlation as affinity,
spectral clustering. The number of groups is not published; it is an argument here.
"""

import warnings

import numpy as np
import torch
from sklearn.cluster import SpectralClustering
from torch import Tensor

from holdfast.errors import HoldfastError


def affinity(tokens: Tensor) -> Tensor:
    """S = P Pᵀ with P the tokens after a softmax over their channels, (N, C) → (N, N)."""
    probabilities = tokens.detach().double().softmax(dim=-1)
    return probabilities @ probabilities.mT


def group_tokens(tokens: Tensor, *, clusters: int) -> np.ndarray:
    """The group of every token, (N, C) → (N,), numbered from 0 by size, the largest first. No random draws."""
    if not 2 <= clusters <= len(tokens):
        raise HoldfastError(f"clusters must lie between 2 and the number of tokens ({len(tokens)}), got {clusters}")
    matrix = _unit_mean(affinity(tokens)).cpu().numpy()
    method = SpectralClustering(clusters, affinity="precomputed", assign_labels="cluster_qr", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an unconnected graph is a clear grouping, not a mistake
        return by_size(method.fit_predict(matrix))


def by_size(labels: np.ndarray) -> np.ndarray:
    """The same groups, renumbered: 0 is the largest; of equal ones, the first to appear."""
    names, first, counts = np.unique(labels, return_index=True, return_counts=True)
    order = np.lexsort((first, -counts))
    rank = np.empty(len(names), dtype=np.int64)
    rank[order] = np.arange(len(names))
    return rank[np.searchsorted(names, labels)]


def _unit_mean(matrix: Tensor) -> Tensor:
    # affinities of wide tokens are all near 1/C: the grouping does not depend on scale, but the solver's accuracy does
    return matrix / matrix.mean().clamp_min(torch.finfo(matrix.dtype).tiny)
