"""Random tensors of attacks: every image draws from the stream of (seed, image id, purpose)."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.rng import stream

Ids = Sequence[int | str] | Tensor


def image_ids(ids: Ids | None, count: int) -> list[int | str]:
    """The images' ids; without any, their positions in the batch."""
    if ids is None:
        return list(range(count))
    names = ids.tolist() if isinstance(ids, Tensor) else list(ids)
    if len(names) != count:
        raise HoldfastError(f"ids must name every image, expected {count}, got {len(names)}")
    return names


def uniform(like: Tensor, *, seed: int, ids: Sequence[int | str], purpose: str) -> Tensor:
    """U[0,1) values of the shape of ``like`` (batch first), each image from its own stream."""
    rows = [stream(seed, name, purpose).random(like.shape[1:], dtype=np.float32) for name in ids]
    return _stack(rows, like)


def normal(like: Tensor, *, seed: int, ids: Sequence[int | str], purpose: str) -> Tensor:
    """Standard normal values of the shape of ``like``, each image from its own stream."""
    rows = [stream(seed, name, purpose).standard_normal(like.shape[1:], dtype=np.float32) for name in ids]
    return _stack(rows, like)


def _stack(rows: list[np.ndarray], like: Tensor) -> Tensor:
    if not rows:
        return torch.empty_like(like)
    return torch.from_numpy(np.stack(rows)).to(device=like.device, dtype=like.dtype)
