"""Keyed random numbers: streams and integers that depend on a key alone, never on batch, order, worker or process."""

import hashlib
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray


def stream(*key: int | str) -> np.random.Generator:
    """A Philox stream (Salmon et al. 2011) whose key is the BLAKE2b digest of these values."""
    return np.random.Generator(np.random.Philox(_Key(_digest(key, 16))))  # type: ignore[arg-type]


def number(*key: int | str, size: int = 8, order: Literal["big", "little"] = "big") -> int:
    """An integer of ``size`` bytes from the BLAKE2b digest of these values, such as an image's id."""
    return int.from_bytes(_digest(key, size), order)


class _Key(np.random.bit_generator.ISeedSequence):
    """Passes a key to Philox unchanged; NumPy would first ask the operating system for entropy, which costs time."""

    def __init__(self, digest: bytes) -> None:
        self.words = np.frombuffer(digest, "<u8").astype(np.uint64)

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        return self.words[:n_words]


def _digest(key: tuple[int | str, ...], size: int) -> bytes:
    text = "\0".join(map(str, key)).encode("utf-8", "surrogateescape")
    return hashlib.blake2b(text, digest_size=size).digest()
