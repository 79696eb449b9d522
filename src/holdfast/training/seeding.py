"""Seeding of the global random generators by keys.

The augmentations of timm and torchvision, mixup and drop-path draw from the global generators of Python, NumPy and
torch. Their callers first call `reseed` with a key for the purpose, so results do not depend on workers or on
earlier draws, and a resumed run continues exactly. A whole run is inside `seeded`, which restores the caller's
generators afterwards.
"""

import contextlib
import random
from collections.abc import Iterator
from enum import IntEnum

import numpy as np
import torch


class Stream(IntEnum):
    """The purpose of draws; the first number of every key."""

    WEIGHTS = 0
    ORDER = 1
    SAMPLE = 2
    STEP = 3


def reseed(*key: int) -> None:
    """Seed the three global generators with a key."""
    seeds = np.random.SeedSequence(key).generate_state(3)
    random.seed(int(seeds[0]))
    np.random.seed(seeds[1])  # noqa: NPY002 - timm draws from this generator
    torch.default_generator.manual_seed(int(seeds[2]))
    if _gpu_in_use():
        torch.cuda.manual_seed(int(seeds[2]))


@contextlib.contextmanager
def seeded(*key: int) -> Iterator[None]:
    """Seed the three global generators with a key, and restore them afterwards."""
    python, legacy, cpu = random.getstate(), np.random.get_state(), torch.default_generator.get_state()  # noqa: NPY002
    gpu = torch.cuda.get_rng_state() if _gpu_in_use() else None
    try:
        reseed(*key)
        yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002
        torch.default_generator.set_state(cpu)
        if gpu is not None:
            torch.cuda.set_rng_state(gpu)


def _gpu_in_use() -> bool:
    return torch.cuda.is_initialized() and not torch.cuda._is_in_bad_fork()
