"""``PairedScores``: the per-image values of one model on one data set that a paired test needs."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.cells import CellSpec, spec_of
from holdfast.errors import HoldfastError
from holdfast.metrics.custom import own_formulas
from holdfast.metrics.replicates import Columns, replicate_cells, used_images
from holdfast.metrics.scoring.base import Key, ScoreDefinition
from holdfast.metrics.scoring.registry import scoring_of
from holdfast.metrics.summary import reference_for, with_clean
from holdfast.records.header import CLASSIFICATION
from holdfast.records.records import Records, load_records
from holdfast.reporting.export.tables import clean_elsewhere


@dataclass(frozen=True, eq=False)
class PairedScores:
    """One model of a paired comparison on one data set.

    Attributes:
        header: header of the records.
        cells: header of every finished cell, by name.
        columns: per-image values by cell and quantity, in the order of the sorted image ids.
        count: number of images common to all cells.
        missing: ids of the other images, which some cell lacks.
        digest: digest of the ids of all images.
        ids: sorted ids of the common images; None for a baseline file, which stores only their digest.
        left_out: quantities that a baseline file does not store.
        unfinished: incomplete cells.
        unreadable: ids of the missing images that could not be read.
        of_sets: scores of a whole set (AP) with their jackknife replicates, by cell and quantity.
        targets: targets of the images, in the same order; None for a baseline file.
    """

    header: Mapping[str, Any]
    cells: Mapping[str, Mapping[str, Any]]
    columns: Columns
    count: int
    missing: tuple[str, ...]
    digest: str
    ids: NDArray[np.str_] | None = None
    left_out: tuple[Key, ...] = ()
    unfinished: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    of_sets: Columns = field(default_factory=dict)
    targets: NDArray[Any] | None = None

    @property
    def quantities(self) -> list[Key]:
        """Cells and quantities that scores can read."""
        return [*self.columns, *self.of_sets]

    @property
    def task(self) -> str:
        """Name of the task."""
        return str(self.header.get("task", CLASSIFICATION))

    @property
    def data(self) -> str:
        """Spec of the data set."""
        return str(self.header.get("data", "data"))

    @property
    def model(self) -> str:
        """Name of the model."""
        return str(self.header.get("model", "model"))

    def specs(self, cells: Sequence[str]) -> list[CellSpec]:
        """Specs of these cells."""
        return [spec_of(self.cells[name]) for name in cells]

    def formulas(self, cells: Sequence[str], columns: Sequence[Key]) -> list[ScoreDefinition]:
        """Score definitions for these cells."""
        specs, scoring = self.specs(cells), scoring_of(self.task)
        reference = reference_for(Records(self.header, {"": {}}), None)
        known = scoring.formulas(specs, columns=columns, header=self.header, reference=reference)
        return [*known, *own_formulas(specs, task=self.task)]


def make_paired_scores(records: Records, *, clean: Records | None = None) -> PairedScores:
    """Make paired scores from records; ``clean`` has the clean cell for a stored set without one."""
    cells = with_clean(records, clean)
    if not cells:
        raise HoldfastError(
            f"records of {records.header.get('data', 'data')!r} must have a finished cell, got none; evaluate again"
        )
    if records.passes is not None:
        raise HoldfastError(
            f"records of {records.header.get('data', 'data')!r} hold {records.passes}; "
            "run the evaluation again without --until to finish them"
        )
    everybody = sorted({str(name) for cell in cells.values() for name in (*cell.ids.tolist(), *cell.excluded)})
    used = used_images(cells)
    order = np.argsort(used.ids, kind="stable")
    used = replace(used, ids=used.ids[order], targets=used.targets[order])
    found, here = replicate_cells(cells, used, used.groups()), set(used.ids.tolist())
    return PairedScores(
        records.header,
        {name: dict(cell.header) for name, cell in cells.items()},
        found.columns,
        len(used.ids),
        tuple(name for name in everybody if name not in here),
        names_digest(everybody),
        ids=used.ids,
        unfinished=tuple(records.incomplete),
        unreadable=tuple(sorted({name for cell in cells.values() for name in cell.excluded})),
        of_sets={key: values for key, values in found.items() if key not in found.columns},
        targets=used.targets,
    )


def paired_scores_of(run: Path | str | Records) -> list[PairedScores]:
    """Paired scores of every record set of a run folder or a folder of records, or of records in memory."""
    sets = [run] if isinstance(run, Records) else [records for records in load_records(run) if records.cells]
    if not sets:
        raise HoldfastError(f"{str(run)!r} must contain records, but it has none; run `holdfast evaluate` first")
    return [make_paired_scores(records, clean=clean_elsewhere(records, sets)) for records in sets]


def names_digest(names: Sequence[str]) -> str:
    """Digest of sorted image ids."""
    text = "\0".join(names).encode("utf-8", "surrogateescape")
    return hashlib.blake2b(text, digest_size=16).hexdigest()
