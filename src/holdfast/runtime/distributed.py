"""What torchrun, accelerate or a scheduler says of the processes that it started."""

import os

from holdfast.errors import HoldfastError


def process_count() -> int:
    """How many work together; 1 where nobody says."""
    told = os.environ.get("WORLD_SIZE", "1")
    if not told.isdecimal() or int(told) < 1:
        raise HoldfastError(f"WORLD_SIZE must be the number of processes that work together, got {told!r}; unset it")
    return int(told)
