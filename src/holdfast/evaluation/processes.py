"""Several processes share one evaluation: started by torchrun or accelerate, they meet twice and need no lock."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch import distributed

from holdfast.launched import process_count

PATIENCE = timedelta(days=7)  # a process may wait that long for the slowest


@dataclass(frozen=True)
class Processes:
    """This process' number among all that work together."""

    rank: int = 0
    count: int = 1
    group: Any = None

    @property
    def first(self) -> bool:
        """Whether this is the process that prepares and reports."""
        return self.rank == 0

    def meet(self) -> None:
        """Wait for all others."""
        if self.count > 1:
            distributed.monitored_barrier(self.group, timeout=PATIENCE)

    def share(self, total: int) -> range:
        """This process' part of ``total`` things in a row: neighbours stay together."""
        return range(total * self.rank // self.count, total * (self.rank + 1) // self.count)


@contextmanager
def together() -> Iterator[Processes]:
    """The processes that torchrun or accelerate started; a single one needs none of it."""
    ours = False
    if not (distributed.is_available() and distributed.is_initialized()):
        if process_count() < 2 or "RANK" not in os.environ:
            yield Processes()
            return
        distributed.init_process_group("gloo", timeout=PATIENCE)
        ours = True
    group = distributed.new_group(backend="gloo", timeout=PATIENCE)
    try:
        yield Processes(distributed.get_rank(), distributed.get_world_size(), group)
    finally:
        distributed.destroy_process_group(None if ours else group)
