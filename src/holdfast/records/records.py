"""``Records`` and ``CellRecord``: the per-image results from which all scores, intervals and reports are computed.

On disk a record set is a folder: ``evaluation.json`` (all settings of the evaluation), ``images.safetensors`` (ids and
targets) and one file per finished unit, see `holdfast.records.shard_files`.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.cells import CellSpec, domain_cell, in_order, spec_of
from holdfast.errors import HoldfastError, nearest
from holdfast.io.html_table import table
from holdfast.records.header import CLASSIFICATION, HEADER, check_images, read_header, read_images
from holdfast.records.round_files import CellPart, Measured, join_parts
from holdfast.records.shard_files import (
    DamagedUnit,
    Field,
    Unit,
    field_name,
    fields_of,
    is_named_for,
    read_unit,
    shard_paths,
)
from holdfast.registry import load

if TYPE_CHECKING:
    import pandas

    from holdfast.metrics.scoring.interface import Scoring
    from holdfast.metrics.summary import Summary

logger = logging.getLogger(__name__)


class MissingField(HoldfastError, AttributeError):
    """A cell's units lack a field: they belong to another task, or a damaged header names the wrong one."""


@dataclass(frozen=True, eq=False)
class CellRecord:
    """One prediction (view) of one model on all images of one cell, such as ``fog/3``.

    Attributes:
        ids: image ids, (N,).
        targets: targets as the task records them, (N, …); for classification class indices, int64 (N,).
        fields: the task's fields of the model's outputs, by name, one row per image; also readable as attributes.
            For classification: ``predictions`` (int64), ``confidences``, ``nll``, ``top5`` and, for sequences,
            ``top_five``; (N,), or (N, F) if every image is predicted F times: frames, or masks of an occlusion.
        header: definition of the cell as plain data: ``cell``, ``family``, ``kind``, ``severity``, ``suite``, settings.
        excluded: ids of images that were unreadable in some cell and are excluded from every cell.
        task: name of the task.
    """

    ids: np.ndarray
    targets: np.ndarray
    fields: Mapping[str, Field]
    header: Mapping[str, Any] = field(default_factory=dict)
    excluded: tuple[str, ...] = ()
    task: str = CLASSIFICATION

    def __post_init__(self) -> None:
        for name, values in {"targets": self.targets, **self.fields}.items():
            if len(values) != len(self.ids):
                raise HoldfastError(
                    f"{name} of a cell must have a row for each of its {len(self.ids)} images, got {len(values)}"
                )

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self.fields:
            return self.fields[name]
        raise MissingField(f"a cell of {self.task} has no {name!r} here; its fields are {', '.join(self.fields)}")

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"{self.header.get('cell', 'cell')}: {len(self)} images, mean score {100 * self.accuracy:.2f} %"

    @property
    def spec(self) -> CellSpec:
        """Family, kind and severity of the cell."""
        return spec_of(self.header)

    @property
    def right(self) -> np.ndarray:
        """Per-image score of the task, float64 (N,) from 0 to 1; for classification whether it is correct."""
        return _scoring(self.task).right(self)

    @property
    def accuracy(self) -> float:
        """The mean of `right`; for classification the top-1 accuracy, 0 to 1."""
        return float(self.right.mean()) if len(self) else float("nan")


@dataclass(frozen=True)
class Passes:
    """How many forward passes, pairs of an image and a cell, were measured of all."""

    done: int
    total: int

    def __str__(self) -> str:
        return f"{self.done:,} of {self.total:,} passes"


@dataclass(frozen=True, eq=False)
class Records:
    """Records of one model on one data set.

    Attributes:
        header: plain data: task, model, model fingerprint, data, data fingerprint, seed, preprocessing, preset,
            versions, label (``on-the-fly`` or ``official``), and ``partial`` (the cells that the data set lacks).
        by_view: the cells of every view of the model; a model without views has one, named ``""``.
        current: the view that `cells` shows.
        incomplete: cells with missing units, with the number of units found and expected.
        folder: the folder that they were read from, if any.
        passes: passes of an evaluation that stopped early, whose cells have images of their own; else None.
    """

    header: Mapping[str, Any]
    by_view: Mapping[str, Mapping[str, CellRecord]]
    current: str = ""
    incomplete: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    folder: Path | None = None
    passes: Passes | None = None

    @classmethod
    def of(
        cls, header: Mapping[str, Any], cells: Mapping[str, CellRecord] | Mapping[str, Mapping[str, CellRecord]]
    ) -> "Records":
        """Make records from cells by name, or from such cells by view; the first view is the current one."""
        first = next(iter(cells.values()), None)
        by_view: Any = {"": cells} if first is None or isinstance(first, CellRecord) else cells
        named = {
            view: {name: replace(cell, header={"cell": name, **cell.header}) for name, cell in held.items()}
            for view, held in by_view.items()
        }
        return cls(header, named, current=next(iter(named)))

    @property
    def task(self) -> str:
        """Name of the task; classification if the header does not name one."""
        return str(self.header.get("task", CLASSIFICATION))

    @property
    def views(self) -> tuple[str, ...]:
        """Names of the model's views."""
        return tuple(self.by_view)

    @property
    def cells(self) -> Mapping[str, CellRecord]:
        """Cells of the current view by name."""
        return self.by_view[self.current]

    def view(self, name: str) -> "Records":
        """The same records with another current view."""
        if name not in self.by_view:
            known = ", ".join(map(repr, self.views))
            raise HoldfastError(f"view must be one of {known}, got {name!r}{nearest(name, self.views)}")
        return Records(self.header, self.by_view, name, self.incomplete, self.folder, self.passes)

    def only(self, cells: Sequence[str]) -> "Records":
        """Select some cells, in that order; missing cells are omitted."""
        by_view = {view: {name: held[name] for name in cells if name in held} for view, held in self.by_view.items()}
        incomplete = {name: counts for name, counts in self.incomplete.items() if name in cells}
        return Records(self.header, by_view, self.current, incomplete, self.folder, self.passes)

    @property
    def domains(self) -> Mapping[str, CellRecord]:
        """The clean images of every domain of ``domains:DIR`` as a cell ``domain/NAME``, by name of the domain."""
        clean = next((cell for cell in self.cells.values() if cell.spec.family == "clean"), None)
        if clean is None:
            return {}
        of_image = np.array([str(id).partition("/")[0] for id in clean.ids])
        return {
            name: _part(clean, np.flatnonzero(of_image == name), domain_cell(name))
            for name in clean.header.get("domains") or ()
        }

    @property
    def excluded(self) -> tuple[str, ...]:
        """Ids of the images that could not be read and are excluded from every cell."""
        return next(iter(self.cells.values())).excluded if self.cells else ()

    def summary(self, **options: Any) -> "Summary":
        """Compute every score that these cells allow, see `holdfast.metrics.summarise`."""
        return load("holdfast.metrics.summary:summarise")(self, **options)

    def to_pandas(self) -> "pandas.DataFrame":
        """A DataFrame with one row per cell, view and image (and frame, if an image is predicted several times)."""
        pandas = import_pandas()
        scoring = _scoring(self.task)
        frames = [
            pandas.DataFrame({"cell": name, "view": view, **scoring.rows(cell)})
            for view, cells in self.by_view.items()
            for name, cell in cells.items()
        ]
        if not frames:
            return pandas.DataFrame(columns=["cell", "view", "id"])
        names = self.header.get("class_names") if scoring.one_class else None
        return _with_class_names(pandas.concat(frames, ignore_index=True), names)

    def __repr__(self) -> str:
        """The mean score of every cell; of corruptions a row per kind and a column per severity."""
        count = max(map(len, self.cells.values()), default=0)
        view = f" ({self.current})" if self.current else ""
        title = f"{self.header.get('model', 'model')}{view} on {self.header.get('data', 'data')}, {count} images"
        graded = {name: cell for name, cell in self.cells.items() if name == f"{cell.spec.kind}/{cell.spec.severity}"}
        others = {name: cell for name, cell in self.cells.items() if name not in graded}
        rows = {name: _percent(cell) for name, cell in others.items()}
        by_kind: dict[str, dict[int, str]] = {}
        for cell in graded.values():
            by_kind.setdefault(cell.spec.kind, {})[cell.spec.severity] = _percent(cell)
        severities = sorted({severity for held in by_kind.values() for severity in held})
        width = max(map(len, [*rows, *by_kind]), default=0)
        lines = [f"  {name:<{width}} {text}" for name, text in rows.items()]
        if severities:
            lines.append(f"  {'severity':<{width}} " + " ".join(f"{severity:>5}" for severity in severities))
        lines += [
            f"  {kind:<{width}} " + " ".join(held.get(severity, f"{'–':>5}") for severity in severities)
            for kind, held in by_kind.items()
        ]
        return "\n".join([f"{title}; mean score, %", *(line.rstrip() for line in lines)])

    def _repr_html_(self) -> str:
        """HTML table of the cells for notebooks; ``summary()`` has the intervals."""
        rows = [(name, f"{100 * cell.accuracy:.2f} %", str(len(cell))) for name, cell in self.cells.items()]
        caption = f"{self.header.get('model', 'model')} on {self.header.get('data', 'data')}"
        return table(caption, ("cell", "mean score", "images"), rows)


def import_pandas() -> Any:
    """Import pandas, which is an optional dependency."""
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise HoldfastError("to_pandas needs pandas, which is not installed; run: pip install pandas") from error
    return pandas


def load_records(folder: Path | str) -> list[Records]:
    """Load all record sets below a folder: a run's, its ``records/``, or a single set; sorted by name.

    Damaged files count as missing: their cells are listed as incomplete, and a warning names them.
    """
    root = Path(folder).expanduser()
    if not root.is_dir():
        reason = "is a file" if root.exists() else "does not exist"
        raise HoldfastError(f"records must be in a folder, but {str(root)!r} {reason}")
    return [read_records(path.parent) for path in sorted(root.rglob(HEADER))]


def read_records(folder: Path, *, cells: Sequence[str] | None = None, rounds: Measured | None = None) -> Records:
    """Read one record set; ``cells`` selects the cells and their order, ``rounds`` are round files read before."""
    header, (ids, targets) = read_header(folder), read_images(folder)
    check_images(header, ids, targets, folder=folder)
    shards = -(-len(ids) // header["shard_size"])
    found: dict[str, list[Unit]] = {}
    unread: list[str] = []
    incomplete = {}
    if rounds is None:
        rounds = Measured(folder, header["fingerprint"], header["views"])
        rounds.read_new()
    for name, units in _units(folder, header, shards=shards, wanted=cells, unread=unread):
        if len(units) == shards and not _every_image_once(units, len(ids)):
            unread.append(f"the files of {name} do not hold every image once")
            incomplete[name] = (0, shards)
        elif len(units) == shards:
            found[name] = units
        elif name in rounds.parts:
            found[name] = [_with_rounds(units, rounds.of(name))]
        else:
            incomplete[name] = (len(units), shards)
    for name in rounds.parts if cells is None else [name for name in cells if name in rounds.parts]:
        if name not in found:
            found[name] = [_with_rounds([], rounds.of(name))]
            incomplete.pop(name, None)
    if unread:
        others = f" (and {len(unread) - 1} more files)" if len(unread) > 1 else ""
        logger.warning("%s%s in %s; run the evaluation again to replace it", unread[0], others, folder.name)
    excluded = np.unique(np.concatenate([np.empty(0, np.int64), *(u.excluded for us in found.values() for u in us)]))
    views = tuple(header["views"])
    by_view = {
        view: {
            name: _cell_record(found[name], view, ids, targets, excluded=excluded, task=str(header["task"]))
            for name in (_order_cells(found) if cells is None else [name for name in cells if name in found])
        }
        for view in views
    }
    return Records(header, by_view, views[0], incomplete, folder, _passes(found, len(ids)))


def _units(
    folder: Path, header: Mapping[str, Any], *, shards: int, wanted: Sequence[str] | None, unread: list[str]
) -> Iterator[tuple[str, list[Unit]]]:
    """Yield the readable units of every cell by name, checked against the files' names and the header."""
    for name, paths in shard_paths(folder, wanted=wanted).items():
        units: list[Unit] = []
        for path in paths[:shards]:
            try:
                unit = read_unit(path)
            except DamagedUnit as error:
                unread.append(str(error))
                continue
            if not is_named_for(unit, path):
                unread.append(f"{path.name} does not contain the unit of its name")
            elif any(unit.header.get(key) != header[key] for key in ("fingerprint", "views")):
                unread.append(f"{path.name} belongs to other records")
            elif units and set(unit.arrays) != set(units[0].arrays):
                unread.append(f"{path.name} is damaged: its fields differ from those of the other shards")
            else:
                units.append(unit)
        # a cell without a readable unit gets its name from the file names
        yield (str(units[0].header["cell"]) if units else name.replace(".", "/")), units


def _with_rounds(units: Sequence[Unit], measured: CellPart | None) -> Unit:
    """All images of a cell that is not complete, from its units and from round files."""
    parts = [CellPart(u.header["cell"], u.header["definition"], u.rows, u.excluded, u.arrays) for u in units]
    whole = join_parts([*parts, *([measured] if measured is not None else [])])
    known = {"cell": whole.cell, "definition": whole.definition}
    return Unit(known, whole.rows, whole.excluded, whole.arrays)


def _passes(found: Mapping[str, Sequence[Unit]], images: int) -> Passes | None:
    """The passes if a cell lacks images."""
    done = sum(len(unit.rows) + len(unit.excluded) for units in found.values() for unit in units)
    return Passes(done, images * len(found)) if done < images * len(found) else None


def _every_image_once(units: Sequence[Unit], count: int) -> bool:
    rows = np.sort(np.concatenate([part for unit in units for part in (unit.rows, unit.excluded)]))
    return np.array_equal(rows, np.arange(count))


def _order_cells(found: Mapping[str, list[Unit]]) -> list[str]:
    return [cell.name for cell in in_order([spec_of(_cell_header(units)) for units in found.values()])]


def _cell_header(units: Sequence[Unit]) -> dict[str, Any]:
    return {"cell": units[0].header["cell"], **units[0].header["definition"]}


def _cell_record(
    units: list[Unit], view: str, ids: np.ndarray, targets: np.ndarray, *, excluded: np.ndarray, task: str
) -> CellRecord:
    rows = np.concatenate([unit.rows for unit in units])
    places = np.argsort(rows)  # shards are strided, so their rows interleave
    places = places[~np.isin(rows[places], excluded)]

    def join_field(name: str) -> Field:
        parts = [unit.arrays[field_name(view, name)] for unit in units]
        if any(isinstance(part, tuple) for part in parts):  # of varying length per image
            values = [value for part in parts for value in part]
            return tuple(values[place] for place in places)
        return np.concatenate(parts)[places]

    fields = {name: join_field(name) for name in fields_of(units[0], view)}
    fields = {name: _wide(values) for name, values in fields.items()}
    left_out = tuple(str(name) for name in ids[excluded])
    rows = rows[places]
    return CellRecord(ids[rows], targets[rows], fields, header=_cell_header(units), excluded=left_out, task=task)


def _percent(cell: CellRecord) -> str:
    return f"{100 * cell.accuracy:5.1f}"


def _part(cell: CellRecord, rows: np.ndarray, spec: CellSpec) -> CellRecord:
    """Some images of a cell as a cell of its own."""
    fields = {
        name: values[rows] if isinstance(values, np.ndarray) else tuple(values[row] for row in rows)
        for name, values in cell.fields.items()
    }
    header = {**cell.header, "cell": spec.name, **spec.plain()}
    return replace(cell, ids=cell.ids[rows], targets=cell.targets[rows], fields=fields, header=header)


def _wide(values: Field) -> Field:
    """Convert int32, which saves space on disk, to int64 for computing."""
    return values.astype(np.int64) if isinstance(values, np.ndarray) and values.dtype == np.int32 else values


def _with_class_names(frame: "pandas.DataFrame", names: Sequence[str] | None) -> "pandas.DataFrame":
    """Add a column of class names beside every column of class indices, if the header has the names."""
    for column in [name for name in ("target", "prediction") if names and name in frame]:
        known = dict(enumerate(names or ()))
        frame.insert(frame.columns.get_loc(column) + 1, f"{column}_name", frame[column].map(known))
    return frame


def _scoring(task: str) -> "Scoring":
    return load("holdfast.metrics.scoring.registry:scoring_of")(task)
