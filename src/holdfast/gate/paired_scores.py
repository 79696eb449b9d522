"""What a paired test needs of one model on one data set: per image and cell what scores average, and nothing else."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import HoldfastError
from holdfast.metrics.custom import own_formulas
from holdfast.metrics.jackknife import image_groups
from holdfast.metrics.score_intervals import set_replicates
from holdfast.metrics.scoring.base import ScoreDefinition
from holdfast.metrics.summary import image_columns, reference_for, shared_ids, shared_targets, with_clean
from holdfast.records.cells import CellSpec, spec_of
from holdfast.records.header import CLASSIFICATION
from holdfast.records.records import Records, load_records
from holdfast.reporting.export.tables import clean_elsewhere
from holdfast.tasks import task_named

Columns = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class PairedScores:
    """One of the two that are compared.

    Attributes:
        header: of the records: what was measured, completely.
        cells: the header of every finished cell, by its name.
        columns: what scores average over the images, by cell and quantity, in the order of the images' sorted names.
        count: how many images count.
        missing: names of images that do not, because one of the cells lacks them.
        digest: of the names of all images.
        ids: the sorted names of the images that count; None where a file keeps only their digest.
        left_out: the columns that a file does not keep.
        unfinished: cells that are only partly measured.
        unreadable: names of those among the missing images that could not be read.
        replicates: of scores that belong to a whole set (AP): its jackknife replicates, by column.
        targets: of the images, in the same order; None where a file does not keep them.
    """

    header: Mapping[str, Any]
    cells: Mapping[str, Mapping[str, Any]]
    columns: Columns
    count: int
    missing: tuple[str, ...]
    digest: str
    ids: NDArray[np.str_] | None = None
    left_out: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    replicates: Columns = field(default_factory=dict)
    targets: NDArray[Any] | None = None

    @property
    def task(self) -> str:
        """What the model was asked to do."""
        return str(self.header.get("task", CLASSIFICATION))

    @property
    def data(self) -> str:
        """The data set's spec."""
        return str(self.header.get("data", "data"))

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.header.get("model", "model"))

    def specs(self, cells: Sequence[str]) -> list[CellSpec]:
        """What these cells are."""
        return [spec_of(self.cells[name]) for name in cells]

    def formulas(self, cells: Sequence[str], columns: Sequence[str]) -> list[ScoreDefinition]:
        """Every score that these cells allow."""
        specs, task = self.specs(cells), task_named(self.task)
        reference = reference_for(Records(self.header, {"": {}}), None)
        known = task.formulas(specs, columns=columns, header=self.header, reference=reference)
        return [*known, *own_formulas(specs, task=self.task)]


def side_of(records: Records, *, clean: Records | None = None) -> PairedScores:
    """What a paired test needs of these records; ``clean`` holds the clean images of a stored set that has none."""
    cells = with_clean(records, clean)
    if not cells:
        raise HoldfastError(f"records of {records.header.get('data', 'data')!r} must hold a finished cell, got none")
    everybody = sorted({str(name) for cell in cells.values() for name in (*cell.ids.tolist(), *cell.excluded)})
    ids = np.array(sorted(shared_ids(cells).tolist()))
    here, targets = set(ids.tolist()), shared_targets(cells, ids)
    return PairedScores(
        records.header,
        {name: dict(cell.header) for name, cell in cells.items()},
        image_columns(cells, ids),
        len(ids),
        tuple(name for name in everybody if name not in here),
        names_digest(everybody),
        ids=ids,
        unfinished=tuple(records.incomplete),
        unreadable=tuple(sorted({name for cell in cells.values() for name in cell.excluded})),
        replicates=set_replicates(cells, ids, image_groups(ids, targets), task=records.task),
        targets=targets,
    )


def paired_scores_of(run: Path | str | Records) -> list[PairedScores]:
    """A side for every record set of a run's folder, of a folder of records, or of records in memory."""
    sets = [run] if isinstance(run, Records) else [records for records in load_records(run) if records.cells]
    if not sets:
        raise HoldfastError(f"{str(run)!r} must hold records to judge, but it has none; run `holdfast evaluate` first")
    return [side_of(records, clean=clean_elsewhere(records, sets)) for records in sets]


def names_digest(names: Sequence[str]) -> str:
    """A digest of the names of all images, sorted."""
    text = "\0".join(names).encode("utf-8", "surrogateescape")
    return hashlib.blake2b(text, digest_size=16).hexdigest()
