"""Number of distributed processes, from the environment of torchrun, accelerate or a scheduler."""

import os

from holdfast.errors import HoldfastError


def process_count() -> int:
    """World size; 1 without ``WORLD_SIZE``."""
    value = os.environ.get("WORLD_SIZE", "1")
    if not value.isdecimal() or int(value) < 1:
        raise HoldfastError(f"WORLD_SIZE must be the number of processes, at least 1, got {value!r}; unset it")
    return int(value)
