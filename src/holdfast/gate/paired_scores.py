"""``PairedScores``: the per-image values of one model on one data set that a paired test needs."""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.cells import CellSpec, spec_of
from holdfast.errors import HoldfastError
from holdfast.metrics.custom import own_formulas
from holdfast.metrics.replicates import Columns, UsedImages, replicate_cells, used_images
from holdfast.metrics.scoring.base import Key, ScoreDefinition
from holdfast.metrics.scoring.registry import scoring_of
from holdfast.metrics.summary import image_choice, reference_for, with_clean
from holdfast.records.header import CLASSIFICATION
from holdfast.records.model_files import outdated
from holdfast.records.records import CellRecord, Records, load_records, read_images
from holdfast.reporting.export.tables import clean_elsewhere

logger = logging.getLogger(__name__)

Rows = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class PairedScores:
    """One model of a paired comparison on one data set.

    Attributes:
        header: header of the records.
        cells: header of every finished cell, by name.
        columns: per-image values by cell and quantity, in the order of the sorted image ids.
        count: number of images common to all cells; with ``rows``, of those in any cell.
        missing: ids of the other images, which some cell lacks; with ``rows``, all cells.
        digest: digest of the ids of all images.
        ids: sorted ids of the common images; None for a baseline file, which stores only their digest.
        left_out: quantities that a baseline file does not store.
        unfinished: incomplete cells.
        unreadable: ids of the missing images that could not be read.
        of_sets: scores of a whole set (AP) with their jackknife replicates, by cell and quantity.
        targets: targets of the images, in the same order; None for a baseline file.
        rows: of an evaluation that stopped early, the places of every cell's images among all that were seen,
            ascending; empty if every cell has the same images.
        seen: of a baseline file with ``rows``, which of all images were seen, in the order of the sorted ids.
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
    rows: Rows = field(default_factory=dict)
    seen: NDArray[np.bool_] | None = None

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
    everybody = sorted(_all_names(records, cells))
    used = _sorted(used_images(cells, images=image_choice(records)))
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
        rows=used.rows,
    )


def _all_names(records: Records, cells: Mapping[str, CellRecord]) -> set[str]:
    """Ids of all images of the data, also of those that no cell has yet."""
    found = {str(name) for cell in cells.values() for name in (*cell.ids.tolist(), *cell.excluded)}
    if records.passes is not None and records.folder is not None and records.folder.exists():
        found |= set(map(str, read_images(records.folder)[0]))
    return found


def _sorted(used: UsedImages) -> UsedImages:
    """The same images in the order of their ids."""
    order = np.argsort(used.ids, kind="stable")
    places = np.argsort(order)
    rows = {name: np.sort(places[each]) for name, each in used.rows.items()}
    return UsedImages(used.ids[order], used.targets[order], rows)


def paired_scores_of(run: Path | str | Records) -> list[PairedScores]:
    """Paired scores of every record set of a run folder or a folder of records, or of records in memory."""
    sets = [run] if isinstance(run, Records) else _present_records(run)
    if not sets:
        raise HoldfastError(f"{str(run)!r} must contain records, but it has none; run `holdfast evaluate` first")
    return [make_paired_scores(records, clean=clean_elsewhere(records, sets)) for records in sets]


def _present_records(run: Path | str) -> list[Records]:
    """Record sets of a run or folder without those that the run's weights before the present ones gave."""
    sets = [records for records in load_records(run) if records.cells]
    before = outdated(sets, Path(run))
    names = ", ".join(records.folder.name for records in before if records.folder is not None)
    if before and len(before) == len(sets):
        raise HoldfastError(
            f"records of {str(run)!r} must be of its present weights, but config.json or model.safetensors has changed "
            f"since {names} was measured; evaluate again, or name the records: RUN/records/NAME"
        )
    if before:
        logger.warning("left out %s in %s: measured with earlier weights of the run", names, run)
    return [records for records in sets if records not in before]


def names_digest(names: Sequence[str]) -> str:
    """Digest of sorted image ids."""
    text = "\0".join(names).encode("utf-8", "surrogateescape")
    return hashlib.blake2b(text, digest_size=16).hexdigest()
