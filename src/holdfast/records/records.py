"""What was measured, image by image: every score, interval, comparison and report is computed from this alone.

On disk a record set is a folder: ``evaluation.json`` (what was measured, completely), ``images.safetensors`` (ids and
classes) and one file per finished unit, see :mod:`holdfast.records.units`.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from holdfast import atomic
from holdfast.corruptions.catalog import ALL
from holdfast.corruptions.sequences import SEQUENCES
from holdfast.errors import HoldfastError, nearest
from holdfast.records.units import FIELDS, TOP_FIVE, DamagedUnit, Unit, field_name, read_unit, unit_name

if TYPE_CHECKING:
    import pandas

    from holdfast.metrics.summary import Summary

logger = logging.getLogger(__name__)

HEADER, IMAGES, FOLDER = "evaluation.json", "images.safetensors", "records"


@dataclass(frozen=True, eq=False)
class CellRecord:
    """One prediction (view) of one model on all images of one cell, such as ``fog/3``.

    Attributes:
        ids: the images' names, (N,).
        targets: their classes, int64 (N,).
        predictions: the classes seen, int64; (N,), or (N, F) where every image is seen F times: the frames of a
            sequence, or the masks of an occlusion. The next three have the same shape.
        confidences: the largest softmax probability, float32.
        nll: the negative log-likelihood of the target, float32.
        top5: whether the target is among the five largest logits, bool.
        header: what the cell is, as plain data: ``cell``, ``suite``, its settings.
        excluded: ids of images that no cell of this record set counts, because one of them could not read them.
        top_five: the five best classes of every frame, best first, int64 (N, F, 5); of sequences only.
    """

    ids: np.ndarray
    targets: np.ndarray
    predictions: np.ndarray
    confidences: np.ndarray
    nll: np.ndarray
    top5: np.ndarray
    header: Mapping[str, Any] = field(default_factory=dict)
    excluded: tuple[str, ...] = ()
    top_five: np.ndarray | None = None

    def __post_init__(self) -> None:
        if not len(self.ids) == len(self.targets) == len(self.predictions):
            raise HoldfastError(
                "ids, targets and predictions of a cell must be equally long, got "
                f"{len(self.ids)}, {len(self.targets)} and {len(self.predictions)}"
            )
        for name in ("confidences", "nll", "top5"):
            if getattr(self, name).shape != self.predictions.shape:
                raise HoldfastError(
                    f"{name} must have the shape {self.predictions.shape} of predictions, "
                    f"got {getattr(self, name).shape}"
                )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def right(self) -> np.ndarray:
        """The share of right answers of each image, float64 (N,): 0 or 1 where it is seen once."""
        return self._per_image(self.predictions == _along(self.targets, self.predictions))

    @property
    def accuracy(self) -> float:
        """Top-1 accuracy, 0 to 1."""
        return float(self.right.mean()) if len(self) else float("nan")

    def _per_image(self, values: np.ndarray) -> np.ndarray:
        return values.reshape(len(values), -1).mean(axis=1, dtype=np.float64) if len(values) else np.empty(0)


@dataclass(frozen=True, eq=False)
class Records:
    """One model on one data set.

    Attributes:
        header: plain data: model, model fingerprint, data, data fingerprint, seed, preprocessing, preset, versions,
            label (``on-the-fly`` or ``official``), and ``partial`` (the cells that the data set lacks), if any.
        by_view: the cells of every prediction the model gives; a plain model gives one, named ``""``.
        current: the view that :attr:`cells` shows.
        incomplete: cells of which only some units are there, with the units found and wanted.
        folder: where they were read from, if from disk.
    """

    header: Mapping[str, Any]
    by_view: Mapping[str, Mapping[str, CellRecord]]
    current: str = ""
    incomplete: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    folder: Path | None = None

    @classmethod
    def of(
        cls, header: Mapping[str, Any], cells: Mapping[str, CellRecord] | Mapping[str, Mapping[str, CellRecord]]
    ) -> "Records":
        """Records from cells by name, or from views of such cells by name; the first view is the current one."""
        first = next(iter(cells.values()), None)
        by_view = {"": cells} if first is None or isinstance(first, CellRecord) else cells
        return cls(header, by_view, current=next(iter(by_view)))  # type: ignore[arg-type]

    @property
    def views(self) -> tuple[str, ...]:
        """The names of the model's predictions."""
        return tuple(self.by_view)

    @property
    def cells(self) -> Mapping[str, CellRecord]:
        """The cells of the current view by name."""
        return self.by_view[self.current]

    def view(self, name: str) -> "Records":
        """The same records, seen through another prediction of the model."""
        if name not in self.by_view:
            known = ", ".join(map(repr, self.views))
            raise HoldfastError(f"view must be one of {known}, got {name!r}{nearest(name, self.views)}")
        return Records(self.header, self.by_view, name, self.incomplete, self.folder)

    def only(self, cells: Sequence[str]) -> "Records":
        """The records of some cells, in that order; those that are not there are left out."""
        by_view = {view: {name: held[name] for name in cells if name in held} for view, held in self.by_view.items()}
        incomplete = {name: counts for name, counts in self.incomplete.items() if name in cells}
        return Records(self.header, by_view, self.current, incomplete, self.folder)

    @property
    def excluded(self) -> tuple[str, ...]:
        """Ids of the images that could not be read and count nowhere."""
        return next(iter(self.cells.values())).excluded if self.cells else ()

    def summary(self, **options: Any) -> "Summary":
        """Every score that these cells allow."""
        from holdfast.metrics.summary import summarise

        return summarise(self, **options)

    def to_pandas(self) -> "pandas.DataFrame":
        """One row per cell, view and image (and frame, where an image is seen several times)."""
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise HoldfastError("to_pandas needs pandas, which is not installed; run: pip install pandas") from error
        frames = [pandas.DataFrame(columns) for columns in _columns(self)]
        return pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame(columns=list(_COLUMNS))


def load_records(folder: Path | str) -> list[Records]:
    """All record sets below a folder: a run's, its ``records/``, or a single set; sorted by name.

    Damaged files count as missing: their cells are listed as incomplete, and said to the log.
    """
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise HoldfastError(f"records must be in a folder, but {str(root)!r} is not there")
    return [read_records(path.parent) for path in sorted(root.rglob(HEADER))]


def read_records(folder: Path, *, cells: Sequence[str] | None = None) -> Records:
    """One record set; ``cells`` limits what is read, and fixes the order."""
    header, (ids, targets) = read_header(folder), read_images(folder)
    wanted = cells if cells is not None else _cells_in(folder)
    shards = -(-len(ids) // header["shard_size"])
    units, incomplete = {}, {}
    unread: list[str] = []
    for cell in wanted:
        found = list(_units(folder, cell, shards=shards, fingerprint=header["fingerprint"], unread=unread))
        if len(found) == shards:
            units[cell] = found
        else:
            incomplete[cell] = (len(found), shards)
    if unread:
        others = f", and {len(unread) - 1} more files like it," if len(unread) > 1 else ""
        logger.warning("%s%s in %s; evaluate again to replace what is missing", unread[0], others, folder.name)
    excluded = np.unique(np.concatenate([np.empty(0, np.int64), *(u.excluded for us in units.values() for u in us)]))
    views = tuple(header["views"])
    by_view = {
        view: {cell: _cell_record(found, view, ids, targets, excluded) for cell, found in units.items()}
        for view in views
    }
    return Records(header, by_view, views[0], incomplete, folder)


def write_header(folder: Path, header: Mapping[str, Any]) -> None:
    """Write ``evaluation.json``."""
    atomic.write_text(folder / HEADER, json.dumps(dict(header), indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def read_header(folder: Path) -> dict[str, Any]:
    """Read ``evaluation.json``."""
    try:
        header = json.loads((folder / HEADER).read_text(encoding="utf-8"))
        missing = [key for key in ("fingerprint", "shard_size", "views") if key not in header]
    except (OSError, ValueError, TypeError) as error:
        raise HoldfastError(f"{str(folder / HEADER)!r} cannot be read as the header of records") from error
    if missing:
        raise HoldfastError(f"{str(folder / HEADER)!r} must name {', '.join(missing)}, but does not")
    return header


def write_images(folder: Path, ids: Sequence[str], targets: np.ndarray) -> None:
    """Write the list of all images: their ids, and their classes."""
    text = np.frombuffer("\0".join(ids).encode("utf-8", "surrogateescape"), dtype=np.uint8)
    with atomic.replacing(folder / IMAGES) as temporary:
        temporary.write_bytes(save({"ids": text.copy(), "targets": targets.astype(np.int64)}))


def read_images(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read the list of all images: ids (text) and classes (int64)."""
    try:
        arrays = load_file(folder / IMAGES)
        ids = arrays["ids"].tobytes().decode("utf-8", "surrogateescape").split("\0")
        targets = arrays["targets"]
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise HoldfastError(f"{str(folder / IMAGES)!r} cannot be read as the images of records") from error
    if len(ids) != len(targets):
        raise HoldfastError(f"{str(folder / IMAGES)!r} is damaged: {len(ids)} ids for {len(targets)} classes")
    return np.array(ids, dtype=np.str_), targets


def _cells_in(folder: Path) -> list[str]:
    names = (path.name.removesuffix(".safetensors").rpartition(".")[0] for path in folder.glob("*.*.safetensors"))
    return sorted({name.replace(".", "/") for name in names if not name.startswith(".")}, key=_order)


def _order(cell: str) -> tuple[int, str]:
    """Clean first, then corruptions and sequences in their canonical order, then attacks and sets by name."""
    kind = cell.removeprefix("sequence/").partition("/")[0]
    known = SEQUENCES if cell.startswith("sequence/") else ("clean", *ALL)
    base = len(ALL) + 1 if cell.startswith("sequence/") else 0
    return base + known.index(kind) if kind in known else len(ALL) + len(SEQUENCES) + 1, cell


def _units(folder: Path, cell: str, *, shards: int, fingerprint: str, unread: list[str]) -> Iterator[Unit]:
    for shard in range(shards):
        path = folder / unit_name(cell, shard)
        if not path.exists():
            continue
        try:
            unit = read_unit(path)
        except DamagedUnit as error:
            unread.append(str(error))
            continue
        if unit.header["fingerprint"] == fingerprint:
            yield unit
        else:
            unread.append(f"{path.name} belongs to other records")


def _cell_record(
    units: list[Unit], view: str, ids: np.ndarray, targets: np.ndarray, excluded: np.ndarray
) -> CellRecord:
    rows = np.concatenate([unit.rows for unit in units])
    places = np.argsort(rows)  # a shard is a sample of the images, not a stretch of them
    places = places[~np.isin(rows[places], excluded)]

    def joined(name: str) -> np.ndarray:
        return np.concatenate([unit.arrays[field_name(view, name)] for unit in units])[places]

    fields = {name: joined(name) for name in FIELDS}
    fields["predictions"] = fields["predictions"].astype(np.int64)
    header = {"cell": units[0].header["cell"], **units[0].header["definition"]}
    top_five = joined(TOP_FIVE).astype(np.int64) if field_name(view, TOP_FIVE) in units[0].arrays else None
    left_out = tuple(str(name) for name in ids[excluded])
    rows = rows[places]
    return CellRecord(ids[rows], targets[rows], **fields, header=header, excluded=left_out, top_five=top_five)


_COLUMNS = ("cell", "view", "id", "frame", "target", "prediction", "right", "confidence", "nll", "top5")


def _columns(records: Records) -> Iterator[dict[str, Any]]:
    for view, cells in records.by_view.items():
        for name, cell in cells.items():
            times = cell.predictions.shape[1] if cell.predictions.ndim == 2 else 1
            targets = np.repeat(cell.targets, times)
            predictions = cell.predictions.reshape(-1)
            values = (
                *(name, view, np.repeat(cell.ids, times), np.tile(np.arange(times), len(cell)), targets, predictions),
                *(predictions == targets, cell.confidences.reshape(-1), cell.nll.reshape(-1), cell.top5.reshape(-1)),
            )
            yield dict(zip(_COLUMNS, values, strict=True))


def _along(targets: np.ndarray, like: np.ndarray) -> np.ndarray:
    return targets.reshape(-1, *(1,) * (like.ndim - 1))
