"""`AttentionHandle`: queries, keys and biases of one block, from which its attention maps are computed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from holdfast.errors import HoldfastError

Kind = Literal["token", "window", "channel", "class"]


@dataclass(frozen=True, eq=False)
class AttentionHandle:
    """One block's attention: everything its maps are computed from.

    Attributes:
        name: the attention module's path in the model.
        kind: ``token`` (all tokens of an image), ``window`` (tokens of a window; windows are in the batch axis),
            ``channel`` (channels attend to channels, XCiT) or ``class`` (the class token reads the others).
        q: queries, (B, h, N, d); for kind ``channel`` (B, h, d, N), normalised.
        k: keys, likewise.
        scale: factor of q·kᵀ.
        grid: rows and columns of the keys (of one window for ``window``), prefix tokens not counted; always row by row.
        prefix: class and register tokens in front of the grid.
        windows: windows per column and row of the image, for ``window``.
        query_grid: rows and columns of the queries if they are fewer than the keys (Hiera pools them), else None.
        image_grid: rows and columns of all tokens of the image, for ``window``; padding not counted.
        shift: cyclic shift of the image before it is partitioned into windows (Swin).
        mixing: (h, h) matrix that mixes the heads' scaled scores first (CaiT's talking heads).
        multiplier: factor of the scaled scores before the softmax (RVT's PAAS), broadcastable.
        bias: term added after that (relative positions, shift masks), broadcastable.
        unrolled: position, row by row, of each token of the block's output if the order differs (Hiera).
    """

    name: str
    kind: Kind
    q: Tensor
    k: Tensor
    scale: float
    grid: tuple[int, int] | None = None
    prefix: int = 0
    windows: tuple[int, int] | None = None
    query_grid: tuple[int, int] | None = None
    image_grid: tuple[int, int] | None = None
    shift: tuple[int, int] = (0, 0)
    mixing: Tensor | None = None
    multiplier: Tensor | None = None
    bias: Tensor | None = None
    unrolled: Tensor | None = None

    def maps(self) -> Tensor:
        """Attention after the softmax and before any dropout, (B, h, queries, keys); gradients flow."""
        return self.rows_of(slice(None))

    def rows(self, chunk: int = 256) -> Iterator[Tensor]:
        """The maps of ``chunk`` queries at a time, in order, for sequences whose whole map is too large."""
        if chunk < 1:
            raise HoldfastError(f"chunk must be at least 1, got {chunk}")
        for start in range(0, self.q.shape[-2], chunk):
            yield self.rows_of(slice(start, start + chunk))

    def rows_of(self, rows: slice) -> Tensor:
        """The maps of some queries, (B, h, rows, keys)."""
        scores = self.q[..., rows, :] @ self.k.transpose(-2, -1) * self.scale
        if self.mixing is not None:
            scores = (scores.movedim(1, -1) @ self.mixing.to(scores.dtype).mT).movedim(-1, 1)
        if self.multiplier is not None:
            scores = scores * _rows(self.multiplier, rows)
        if self.bias is not None:
            scores = scores + _rows(self.bias, rows)
        return scores.softmax(dim=-1)


def _rows(tensor: Tensor, rows: slice) -> Tensor:
    """Some rows of a tensor, which may have a single row for all queries."""
    return tensor if tensor.shape[-2] == 1 else tensor[..., rows, :]
