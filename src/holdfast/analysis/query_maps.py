"""Attention of one query and attention received by each token as maps over the image; downsampled N × N maps."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.analysis.layer_info import by_image, map_rows
from holdfast.attention import AttentionHandle
from holdfast.errors import HoldfastError

MOST_CELLS = 256  # rows and columns of a stored N × N map; longer sequences are averaged down to it


@dataclass(frozen=True)
class Place:
    """Position of a query: its row and column in the grid of all queries of the image, and that grid."""

    row: int
    column: int
    grid: tuple[int, int]


def place_of(handle: AttentionHandle, query: tuple[float, float]) -> Place:
    """The query at relative coordinates (row, column) of the image; (0.5, 0.5) is the centre patch."""
    grid = query_grid(handle)
    row, column = (min(int(share * side), side - 1) for share, side in zip(query, grid, strict=True))
    return Place(row, column, grid)


def image_grid(handle: AttentionHandle) -> tuple[int, int]:
    """Rows and columns of all tokens of the image that can be attended to."""
    grid = handle.image_grid if handle.kind == "window" else handle.grid
    if handle.kind not in ("token", "window") or grid is None:
        raise HoldfastError(f"{handle.name} has no attention between places of the image (kind {handle.kind})")
    return grid


def query_grid(handle: AttentionHandle) -> tuple[int, int]:
    """Rows and columns of all queries of the image; fewer than tokens if a block pools them."""
    height, width = image_grid(handle)
    if handle.query_grid is None or handle.grid is None:
        return height, width
    return height * handle.query_grid[0] // handle.grid[0], width * handle.query_grid[1] // handle.grid[1]


def query_map(handle: AttentionHandle, place: Place, *, head: int | None = None) -> Tensor:
    """The attention of one query, of one head or averaged over all, over the image's tokens, (B, rows, columns).

    Outside of the query's window it is 0.
    """
    if handle.kind == "window":
        return _in_window(handle, place, head)
    index = handle.prefix + place.row * place.grid[1] + place.column
    row = handle.rows_of(slice(index, index + 1)).detach().float()[:, :, 0, handle.prefix :]  # B h N
    return _one_or_mean(row, head).unflatten(1, image_grid(handle))


def received_map(handle: AttentionHandle, *, head: int | None = None) -> Tensor:
    """The attention each token receives, averaged over the queries (of its window), (B, rows, columns)."""
    grid, total = image_grid(handle), None
    for rows in map_rows(handle):
        some = rows.sum(dim=-2)  # B windows h keys
        total = some if total is None else total + some
    assert total is not None
    received = _one_or_mean(total.transpose(1, 2), head) / handle.q.shape[-2]  # B windows keys
    if handle.kind != "window":
        return received[:, 0, handle.prefix :].unflatten(1, grid)
    assert handle.grid is not None
    assert handle.windows is not None
    placed = (
        received.unflatten(2, handle.grid).unflatten(1, handle.windows).transpose(2, 3)
    )  # B down rows right columns
    whole = placed.flatten(3, 4).flatten(1, 2)[:, : grid[0], : grid[1]]  # padding is cut off
    return whole.roll(handle.shift, dims=(1, 2))


def _one_or_mean(heads: Tensor, head: int | None) -> Tensor:
    """One head or the mean of all: (B, h, …) → (B, …)."""
    return heads.mean(dim=1) if head is None else heads[:, head]


def small_map(handle: AttentionHandle, *, window: int = 0, average: bool = True, most: int = MOST_CELLS) -> Tensor:
    """The downsampled N × N map: (B, M, M), heads averaged, or (B, h, M, M); M is at most ``most``.

    For window attention, the map of one window.
    """
    chunks = []
    for rows in map_rows(handle):
        heads = rows[:, window]  # B h rows keys
        chunks.append(_down(heads.mean(dim=1, keepdim=True) if average else heads, most))
    whole = torch.cat(chunks, dim=2)  # B h N M
    small = _down(whole.mT, most).mT
    return small[:, 0] if average else small


def middle_window(handle: AttentionHandle) -> int:
    """The number of the window in the middle of the image; 0 for attention over all tokens."""
    if handle.kind != "window" or handle.windows is None:
        return 0
    rows, columns = handle.windows
    return (rows // 2) * columns + columns // 2


def _down(maps: Tensor, most: int) -> Tensor:
    """Average the last axis down to at most ``most`` values."""
    if maps.shape[-1] <= most:
        return maps
    return F.adaptive_avg_pool1d(maps.flatten(0, 2), most).unflatten(0, maps.shape[:3])


def _in_window(handle: AttentionHandle, place: Place, head: int | None) -> Tensor:
    assert handle.grid is not None
    assert handle.windows is not None
    height, width = image_grid(handle)
    side, asking, (_, across) = handle.grid, handle.query_grid or handle.grid, handle.windows
    shift = handle.shift
    row, column = (place.row - shift[0]) % place.grid[0], (place.column - shift[1]) % place.grid[1]  # after the roll
    down, right = row // asking[0], column // asking[1]  # which window
    index = (row % asking[0]) * asking[1] + column % asking[1]
    maps = by_image(handle, handle.rows_of(slice(index, index + 1)).detach().float())  # B windows h 1 keys
    attention = _one_or_mean(maps[:, down * across + right, :, 0], head).unflatten(
        1, side
    )  # B rows columns of the window
    rows = down * side[0] + torch.arange(side[0], device=attention.device)
    columns = right * side[1] + torch.arange(side[1], device=attention.device)
    whole = attention.new_zeros(len(attention), height, width)
    real_rows, real_columns = rows < height, columns < width  # the rest is padding
    target = ((rows[real_rows] + shift[0]) % height)[:, None], ((columns[real_columns] + shift[1]) % width)[None]
    whole[:, target[0], target[1]] = attention[:, real_rows][:, :, real_columns]
    return whole
