"""Random numbers of attacks, keyed by image rather than by batch.

Every draw is keyed by (seed, image id, purpose), so it is the same for any batch size, order, worker or process.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import HoldfastError

Ids = Sequence[int | str] | Tensor


def image_ids(ids: Ids | None, count: int) -> list[int | str]:
    """The images' ids; without any, their positions in the batch."""
    if ids is None:
        return list(range(count))
    names = ids.tolist() if isinstance(ids, Tensor) else list(ids)
    if len(names) != count:
        raise HoldfastError(f"ids must name every image, expected {count}, got {len(names)}")
    return names


def generator(seed: int, image_id: int | str, purpose: str) -> np.random.Generator:
    """A Philox stream (Salmon et al. 2011) whose key is a BLAKE2b digest of the three arguments."""
    digest = hashlib.blake2b(
        f"{seed}\0{image_id}\0{purpose}".encode("utf-8", "surrogateescape"), digest_size=16
    ).digest()
    key = np.frombuffer(digest, "<u8").astype(np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def uniform(like: Tensor, *, seed: int, ids: Sequence[int | str], purpose: str) -> Tensor:
    """U[0,1) values of the shape of ``like`` (batch first), each image from its own stream."""
    rows = [generator(seed, name, purpose).random(like.shape[1:], dtype=np.float32) for name in ids]
    return _stack(rows, like)


def normal(like: Tensor, *, seed: int, ids: Sequence[int | str], purpose: str) -> Tensor:
    """Standard normal values of the shape of ``like``, each image from its own stream."""
    rows = [generator(seed, name, purpose).standard_normal(like.shape[1:], dtype=np.float32) for name in ids]
    return _stack(rows, like)


def _stack(rows: list[np.ndarray], like: Tensor) -> Tensor:
    if not rows:
        return torch.empty_like(like)
    return torch.from_numpy(np.stack(rows)).to(device=like.device, dtype=like.dtype)
