"""Attention stability: the cosine between the attention of an image and of the same image gone bad.

TAP/ADL (Guo et al., ICCV 2023), Fig. 1 and 5; AFAT, Fig. 1, 3, 4 and 8: per head, without averaging heads, then the
mean over all heads and layers, one score per image. The papers do not say whether a map is one vector or a list of
rows: ``flattened`` takes it as one vector and is what we report; ``row_wise`` is the mean of its rows' cosines.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.analysis.rows import VALUES, by_image, row_slices
from holdfast.attention import AttentionHandle
from holdfast.errors import HoldfastError


@dataclass(frozen=True, eq=False)
class HeadCosines:
    """One layer's cosines, each (B, h)."""

    flattened: Tensor
    row_wise: Tensor


def head_cosines(clean: AttentionHandle, corrupted: AttentionHandle, *, values: int = VALUES) -> HeadCosines:
    """The cosine of every head's clean and corrupted map, read a few rows at a time.

    Windows of one image are parts of one vector.
    """
    check_same_maps(clean, corrupted)
    images = by_image(clean, clean.q).shape[0]
    products = torch.zeros(3, images, clean.q.shape[1], dtype=torch.float64, device=clean.q.device)  # a·b, a·a, b·b
    rows = torch.zeros(images, clean.q.shape[1], dtype=torch.float64, device=clean.q.device)
    for part in row_slices(clean, values=values):
        a, b = (by_image(handle, handle.rows_of(part).detach().float()) for handle in (clean, corrupted))
        each = torch.stack([(a * b).sum(-1), (a * a).sum(-1), (b * b).sum(-1)]).double()  # 3 B windows h rows
        products += each.sum(dim=(2, 4))
        rows += _cosine(each).sum(dim=(1, 3))
    count = clean.q.shape[-2] * by_image(clean, clean.q).shape[1]
    return HeadCosines(_cosine(products).float(), (rows / count).float())


def layer_cosines(
    clean: Sequence[AttentionHandle], corrupted: Sequence[AttentionHandle], *, values: int = VALUES
) -> list[HeadCosines]:
    """`head_cosines` of every layer."""
    if len(clean) != len(corrupted) or not clean:
        raise HoldfastError(
            f"clean and corrupted must be the same layers twice, got {len(clean)} and {len(corrupted)} of them"
        )
    return [head_cosines(a, b, values=values) for a, b in zip(clean, corrupted, strict=True)]


def image_scores(cosines: Sequence[Tensor]) -> Tensor:
    """One score per image: the mean over all heads of all layers, from (B, h) per layer → (B,)."""
    return torch.cat(list(cosines), dim=1).mean(dim=1)


def check_same_maps(clean: AttentionHandle, corrupted: AttentionHandle) -> None:
    """Refuse maps of different token grids: a cosine between them has no meaning."""
    if clean.q.shape != corrupted.q.shape or clean.k.shape != corrupted.k.shape or clean.grid != corrupted.grid:
        raise HoldfastError(
            "clean and corrupted attention must be of the same images, heads and token grid, got "
            f"{_described(clean)} and {_described(corrupted)}; give both passes images of one size"
        )


def _cosine(products: Tensor) -> Tensor:
    """From a·b, a·a and b·b in the first axis."""
    return products[0] / (products[1] * products[2]).sqrt().clamp_min(torch.finfo(products.dtype).tiny)


def _described(handle: AttentionHandle) -> str:
    grid = "×".join(map(str, handle.grid)) if handle.grid else "?"
    return f"{handle.q.shape[0]}×{handle.q.shape[1]} maps of a {grid} grid"
