"""Error section for detectors and segmenters: error types, classes, boundaries and calibration."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from holdfast.metrics.calibration import pixel_error
from holdfast.metrics.detection_errors import DETECTIONS, OBJECTS, SIZES, Breakage, breakage
from holdfast.metrics.iou import class_iou, mean_iou
from holdfast.metrics.scoring.segmentation import band_name
from holdfast.records.records import CellRecord, Records
from holdfast.reporting.formatting import NOT_MEASURED, clean_name, kind_label, number
from holdfast.reporting.runs import Run
from holdfast.reporting.sections.section import Section
from holdfast.reporting.table import Table, table_of_words

CLEAN = "clean"
Cells = Mapping[str, Sequence[CellRecord]]  # by group, clean images first


def breaks_section(runs: Sequence[Run]) -> Section:
    """Build the tables of every detector and segmenter."""
    held = [(run, records) for run in runs for records in run.records if records.task in _TASKS]
    tables = [table for run, records in held for table in _tables(run, records)]
    text = " ".join(_TASKS[task][0] for task in dict.fromkeys(records.task for _, records in held))
    return Section("breaks", "Error types", text, tables=tables)


def _tables(run: Run, records: Records) -> Iterator[Table]:
    cells = [c for c in records.cells.values() if len(c) and c.spec.family in ("clean", "corruption")]
    if not cells:
        return
    kinds = _group_cells(cells, lambda cell: cell.spec.kind or CLEAN)
    yield from _TASKS[records.task][1](run.name, records, cells, kinds)


def _group_cells(cells: Sequence[CellRecord], key: Callable[[CellRecord], object]) -> Cells:
    found: dict[str, list[CellRecord]] = {}
    for cell in cells:
        found.setdefault(str(key(cell)), []).append(cell)
    return {name: found[name] for name in sorted(found, key=lambda name: name != CLEAN)}


def _title(kind: str) -> str:
    return CLEAN if kind == CLEAN else kind_label(kind)


# ---------------------------------------------------------------------- detection

COLUMNS = ("corruption", *OBJECTS, "background", "recall", "calibration")
SIZE_COLUMNS = ("size", "objects", *OBJECTS)


def _detection_tables(name: str, records: Records, cells: Sequence[CellRecord], kinds: Cells) -> Iterator[Table]:
    errors = {cell.spec: breakage(cell.fields) for cell in cells}
    severities = _group_cells(cells, lambda cell: cell.spec.severity or CLEAN)

    def lines(groups: Cells, words: str = "") -> list[list[str]]:
        return [
            [_title(key) if key == CLEAN or not words else f"{words} {key}", *_line([errors[c.spec] for c in held])]
            for key, held in groups.items()
        ]

    yield table_of_words(f"{name}: error types by corruption", COLUMNS, lines(kinds))
    if len(severities) > 1:
        title, columns = f"{name}: error types by severity", ("severity", *COLUMNS[1:])
        yield table_of_words(title, columns, lines(severities, "severity"))
    sizes = [
        [f"{size}, {CLEAN if key == CLEAN else f'severity {key}'}", *_size_line([errors[c.spec] for c in held], place)]
        for place, size in enumerate(SIZES)
        for key, held in severities.items()
        if place and sum(errors[c.spec].objects[place].sum() for c in held)
    ]
    yield table_of_words(f"{name}: error types by object size", SIZE_COLUMNS, sizes)
    if len(cells) > 1:
        every = [[_cell_title(spec.kind, spec.severity), *_line([one])] for spec, one in errors.items()]
        yield table_of_words(f"{name}: every corruption and severity", COLUMNS, every, aside=True)


def _cell_title(kind: str, severity: int) -> str:
    return f"{_title(kind)} {severity}" if kind else CLEAN


def _line(cells: Sequence[Breakage]) -> list[str]:
    outcomes = np.sum([one.objects[0] for one in cells], axis=0)
    there = max(int(outcomes.sum()), 1)
    empty = sum(int(one.detections[DETECTIONS.index("background")]) for one in cells)
    recall = 100 * float(np.mean([one.recall for one in cells]))
    known = [one.calibration for one in cells if np.isfinite(one.calibration)]
    calibration = float(np.mean(known)) if known else np.nan
    return [*map(_number, [*(100 * outcomes / there), 100 * empty / there, recall, calibration])]


def _size_line(cells: Sequence[Breakage], place: int) -> list[str]:
    outcomes = np.sum([one.objects[place] for one in cells], axis=0)
    return [str(outcomes.sum()), *(_number(share) for share in 100 * outcomes / max(int(outcomes.sum()), 1))]


# ---------------------------------------------------------------------- segmentation


def _class_table(title: str, kinds: Cells, names: Sequence[str]) -> Table:
    """Build the table of corruptions × classes, coloured by the error."""
    rows = [100 * _mean_of_known([class_iou(cell.counts.sum(axis=0)) for cell in held]) for held in kinds.values()]
    classes = [*names, *(str(label) for label in range(len(names), len(rows[0])))]
    lines = [[_title(kind), *(_number(v, digits=0) for v in row)] for kind, row in zip(kinds, rows, strict=True)]
    shades = [[round(100 - float(value), 1) if np.isfinite(value) else None for value in row] for row in rows]
    return table_of_words(title, ["corruption", *classes], lines, shades=shades)


def _band_table(title: str, kinds: Cells) -> Table:
    bands = next(iter(kinds.values()))[0].bands.shape[1]
    columns = ["corruption", *(f"mIoU {band_name(band)}" for band in range(bands)), "ECE, %"]
    return table_of_words(title, columns, [_band_line(kind, held) for kind, held in kinds.items()])


def _band_line(kind: str, cells: Sequence[CellRecord]) -> list[str]:
    pooled = _mean_of_known([mean_iou(cell.bands.sum(axis=0)) for cell in cells])
    sure = [float(pixel_error(cell.calibration.sum(axis=0))) for cell in cells if "calibration" in cell.fields]
    values = [*(100 * pooled), 100 * float(np.mean(sure)) if sure else np.nan]
    return [_title(kind), *map(_number, values)]


def _mean_of_known(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Mean over severities, ignoring NaN of classes that are neither present nor predicted."""
    stacked = np.stack(rows)
    known = np.isfinite(stacked)
    sums = np.where(known, stacked, 0).sum(axis=0)
    return np.divide(sums, known.sum(axis=0), out=np.full(len(sums), np.nan), where=known.any(axis=0))


def _number(value: float, *, digits: int = 1) -> str:
    return number(float(value), digits=digits) if np.isfinite(value) else NOT_MEASURED


def _segmentation_tables(name: str, records: Records, cells: Sequence[CellRecord], kinds: Cells) -> Iterator[Table]:
    classes = [clean_name(each) for each in records.header.get("class_names", ())]
    yield _class_table(f"{name}: IoU per class, percent", kinds, classes)
    yield _band_table(f"{name}: boundaries, interior and calibration", kinds)


# text and tables of the tasks that have any
_TASKS: Mapping[str, tuple[str, Callable[[str, Records, Sequence[CellRecord], Cells], Iterator[Table]]]] = {
    "detection": (
        "Error types after TIDE, in percent of all objects, at a score and IoU of ½: an object is found, "
        "classified wrongly, localised badly (IoU of at least 0.1) or missed; background counts detections without an "
        "object, per 100 objects. Recall: objects that any detection overlaps by ½, whatever its class or score, an "
        "upper bound set by the proposals. Calibration: gap between scores and the fraction of correct detections.",
        _detection_tables,
    ),
    "segmentation": (
        "IoU per class, mIoU by distance to the nearest label boundary, and the expected calibration error "
        "(ECE) of the pixels, for each corruption, averaged over the measured severities.",
        _segmentation_tables,
    ),
}
