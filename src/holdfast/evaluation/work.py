"""``Work``: plan, folder and settings of a runner; its progress callback."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from holdfast.cells import CellSpec
from holdfast.errors import HoldfastError
from holdfast.evaluation.plan import Cell, Plan
from holdfast.records.records import CellRecord
from holdfast.records.shard_files import Unit, field_name, fields_of, unit_name

Key = tuple[int, int]  # shard, number of the cell


class ProgressCallback(Protocol):
    """Receives the progress of a runner."""

    def advance_images(self, count: int) -> None:
        """Advance by this many images."""

    def finish_unit(self, cell: CellSpec, sums: np.ndarray | None) -> None:
        """Count a unit that was written to disk; ``sums`` are those of the task's running score, if it has one."""


@dataclass(frozen=True)
class Work:
    """Plan, output folder and settings of a runner.

    Attributes:
        plan: images and cells.
        folder: folder of the record set.
        fingerprint: fingerprint of the record set, stored in every unit.
        seed: seed of corruptions and attacks.
        shard_size: images per unit.
        batch_size: images per forward pass; changes results only of models with int8 layers.
        attack_batch_size: images per attack batch.
        workers: processes that make images.
    """

    plan: Plan
    folder: Path
    fingerprint: str
    seed: int
    shard_size: int
    batch_size: int
    attack_batch_size: int
    workers: int

    def units(self) -> list[Key]:
        """Keys of all units, shard by shard."""
        cells = range(len(self.plan.cells))
        return [(shard, cell) for shard in range(self.plan.shards(self.shard_size)) for cell in cells]

    def path(self, key: Key) -> Path:
        """Path of a unit's file."""
        return self.folder / unit_name(self.plan.cells[key[1]].name, key[0])


def report_unit(progress: ProgressCallback, work: Work, key: Key, unit: Unit) -> None:
    """Report a finished unit to the progress display, with the running score of the first view."""
    plan, view = work.plan, unit.header["views"][0]
    cell: Cell = plan.cells[key[1]]
    running = plan.task.scoring.running
    if running is None or not len(unit.rows):
        progress.finish_unit(cell.spec, None)
        return
    fields = {name: unit.arrays[field_name(view, name)] for name in fields_of(unit, view)}
    header = {"cell": cell.name, **cell.record_definition}
    # row numbers serve as ids, because running scores do not use names
    record = CellRecord(unit.rows, plan.truth[unit.rows], fields, header=header, task=plan.task.name)
    progress.finish_unit(cell.spec, running.sums(record))


@contextmanager
def cannot_write(folder: Path) -> Iterator[None]:
    """Turn an error of the disk into a sentence."""
    try:
        yield
    except OSError as error:
        raise HoldfastError(
            f"cannot write records to {str(folder)!r} ({error.strerror}); "
            "finished units are kept: run the same command again to resume"
        ) from error
