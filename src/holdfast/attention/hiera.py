"""Reader of Hiera: attention in mask units, later over all tokens; queries are pooled at the start of a stage.

Hiera keeps its tokens unrolled, so that pooling is a maximum over the first axis (its class ``Unroll``). Handles hold
them row by row, as for all other models.
"""

import math
from typing import Any

import torch
from timm.models.hiera import Hiera, MaskUnitAttention
from torch import Tensor

from holdfast.attention.reader import Call, Reader
from holdfast.errors import HoldfastError

Grid = tuple[int, int]
Strides = list[tuple[int, int]]


def read_hiera(call: Call) -> dict[str, Any]:
    """Queries and keys row by row, in windows if the block attends in mask units."""
    module, projected = call.module, call.parts["qkv"]
    grid, strides = _stage(call, projected.shape[1])
    pooled = module.q_stride > 1
    query_grid, query_strides = (_halve_grid(grid, strides[0]), strides[1:]) if pooled else (grid, strides)
    count = projected.shape[1] // (module.q_stride * module.window_size) if module.use_mask_unit_attn else 1
    q, k, _ = projected.unflatten(-1, (3, module.heads, -1)).permute(2, 0, 3, 1, 4)  # B h N d
    if pooled:
        q = q.unflatten(2, (module.q_stride, -1)).amax(dim=2)
    places, query_places = unrolled_places(grid, strides), unrolled_places(query_grid, query_strides)
    q, k = _by_window(q, query_places, count), _by_window(k, places, count)
    found = {"q": q, "k": k, "scale": module.scale, "unrolled": query_places}
    if not module.use_mask_unit_attn:
        return {"kind": "token", "grid": grid, "query_grid": query_grid if pooled else None, **found}
    windows = _windows(places, grid, count)
    return {
        "kind": "window",
        "grid": _divide_grid(grid, windows),
        "query_grid": _divide_grid(query_grid, windows) if pooled else None,
        "windows": windows,
        "image_grid": grid,
        **found,
    }


def unrolled_places(grid: Grid, strides: Strides) -> Tensor:
    """The position, row by row, of each token in Hiera's order, (N,)."""
    places = torch.arange(math.prod(grid)).view(1, *grid)
    for down, across in strides:
        parts = places.unflatten(2, (-1, across)).unflatten(1, (-1, down))  # · H down W across
        places = parts.permute(0, 2, 4, 1, 3).flatten(0, 2)
    return places.flatten()


def _stage(call: Call, tokens: int) -> tuple[Grid, Strides]:
    """The grid of this number of tokens, and the strides that are still unrolled."""
    height, width = call.owner.tokens_spatial_shape
    grid, strides = (height, width), [tuple(stride) for stride in call.owner.unroll.schedule]
    while math.prod(grid) > tokens and strides:
        grid = _halve_grid(grid, strides.pop(0))
    if math.prod(grid) != tokens:
        raise HoldfastError(
            f"cannot watch {call.model}: it attends to {tokens} tokens, which are not a grid of the image's patches; "
            "watch it without masks"
        )
    return grid, strides


def _by_window(x: Tensor, places: Tensor, count: int) -> Tensor:
    """(B, h, N, d) in Hiera's order → (B · windows, h, tokens, d), windows and tokens row by row."""
    order = places.view(-1, count).T  # windows tokens
    order = order[order.amin(dim=1).argsort()].sort(dim=1).values
    numbers = places.argsort()[order].to(x.device)  # index of the token at each position
    return x[:, :, numbers].movedim(2, 1).flatten(0, 1)


def _windows(places: Tensor, grid: Grid, count: int) -> Grid:
    """Windows per column and per row."""
    first = places.view(-1, count)[:, 0]
    rows, columns = len((first // grid[1]).unique()), len((first % grid[1]).unique())
    return grid[0] // rows, grid[1] // columns


def _halve_grid(grid: Grid, stride: tuple[int, int]) -> Grid:
    return grid[0] // stride[0], grid[1] // stride[1]


def _divide_grid(grid: Grid, windows: Grid) -> Grid:
    return grid[0] // windows[0], grid[1] // windows[1]


READERS = {MaskUnitAttention: Reader(read_hiera, ("qkv",), lambda owner: isinstance(owner, Hiera))}
