"""Head diversity: whether the heads of a layer look at different things.

TAP/ADL, Sec. 4.1.2 and Fig. 4: the mean cosine between the maps of two different heads, reported as 0.63 for
FAN-B-Hybrid and 0.27 with TAP and ADL. The paper's details are not published; here: maps flattened,
all h(h−1)/2 pairs.
"""

import torch
from torch import Tensor

from holdfast.analysis.rows import VALUES, by_image, map_rows
from holdfast.attention import AttentionHandle


def head_similarity(handle: AttentionHandle, *, values: int = VALUES) -> Tensor:
    """The cosine between every two heads' flattened maps, (B, h, h)."""
    images, heads = by_image(handle, handle.q).shape[0], handle.q.shape[1]
    products = torch.zeros(images, heads, heads, dtype=torch.float64, device=handle.q.device)
    for rows in map_rows(handle, values=values):
        flat = rows.transpose(1, 2).flatten(2)  # B h (windows rows keys)
        products += (flat @ flat.mT).double()
    norms = products.diagonal(dim1=1, dim2=2).sqrt()
    return (products / (norms.unsqueeze(1) * norms.unsqueeze(2))).float()


def mean_pairwise(similarity: Tensor) -> Tensor:
    """The mean over all pairs of different heads, (B, h, h) → (B,); NaN where there is one head only."""
    heads = similarity.shape[-1]
    pairs = similarity.triu(diagonal=1).sum(dim=(1, 2))
    return pairs / (heads * (heads - 1) / 2) if heads > 1 else torch.full_like(pairs, float("nan"))
