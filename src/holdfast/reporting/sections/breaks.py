"""What breaks in detectors and segmenters: kinds of errors, classes, edges; numbers from records alone."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from holdfast.metrics.detection_errors import OBJECTS, SIZES, breakage
from holdfast.metrics.iou import class_iou, mean_iou
from holdfast.metrics.segmentation_formulas import band_name
from holdfast.records.records import CellRecord, Records
from holdfast.reporting.runs import Run
from holdfast.reporting.sections.section import Section, TextTable
from holdfast.reporting.text import NOT_MEASURED, kind_label, number

TEXT = (
    "Objects: at score and IoU ½ an object is found, seen as another class, badly placed (IoU from 0.1) or missed, "
    "after TIDE, in percent of all; recall counts any detection on it, whatever class or score; calibration is how far "
    "scores lie from the share that is right. Label maps: IoU of every class, and mIoU by distance to the nearest "
    "boundary. Kinds of corruption over the severities that were measured."
)
CLEAN = "clean"
Cells = Mapping[str, Sequence[CellRecord]]  # by kind of corruption, clean images first


def breaks_section(runs: Sequence[Run]) -> Section:
    """Tables of every detector and segmenter in the report."""
    tables = [table for run in runs for records in run.records for table in _tables(run, records)]
    return Section("breaks", "What breaks", TEXT, tables=tables)


def _tables(run: Run, records: Records) -> Iterator[TextTable]:
    cells = _by_kind(records)
    if not cells:
        return
    if records.task == "detection":
        yield TextTable(f"{run.name}: what became of the objects", COLUMNS, [_line(k, v) for k, v in cells.items()])
        if CLEAN in cells:
            yield TextTable(f"{run.name}: by size, clean images", SIZE_COLUMNS, _size_lines(cells[CLEAN][0]))
    if records.task == "segmentation":
        names = [str(name) for name in records.header.get("class_names", ())]
        yield TextTable(f"{run.name}: IoU of every class", ["", *map(_title, cells)], _class_lines(cells, names))
        bands = next(iter(cells.values()))[0].bands.shape[1]
        columns = ["", *(f"mIoU {band_name(band)}" for band in range(bands))]
        yield TextTable(f"{run.name}: edges against areas", columns, [_band_line(k, v) for k, v in cells.items()])


def _by_kind(records: Records) -> Cells:
    found: dict[str, list[CellRecord]] = {}
    for cell in records.cells.values():
        if len(cell) and cell.spec.family in ("clean", "corruption"):
            found.setdefault(cell.spec.kind or CLEAN, []).append(cell)
    return {kind: found[kind] for kind in sorted(found, key=lambda kind: kind != CLEAN)}


def _title(kind: str) -> str:
    return CLEAN if kind == CLEAN else kind_label(kind)


# ---------------------------------------------------------------------- detection

COLUMNS = ("", *OBJECTS, "recall", "calibration")
SIZE_COLUMNS = ("", "objects", *OBJECTS)


def _line(kind: str, cells: Sequence[CellRecord]) -> list[str]:
    told = [breakage(cell.fields) for cell in cells]
    outcomes = np.sum([one.objects[0] for one in told], axis=0)
    shares = 100 * outcomes / max(outcomes.sum(), 1)
    recall = 100 * float(np.mean([one.recall for one in told]))
    known = [one.calibration for one in told if np.isfinite(one.calibration)]
    return [_title(kind), *map(_number, [*shares, recall, float(np.mean(known)) if known else np.nan])]


def _size_lines(cell: CellRecord) -> list[list[str]]:
    counts = breakage(cell.fields).objects
    return [
        [size, str(row.sum()), *(_number(share) for share in 100 * row / row.sum())]
        for size, row in zip(SIZES, counts, strict=True)
        if row.sum()
    ]


# ---------------------------------------------------------------------- segmentation


def _class_lines(cells: Cells, names: Sequence[str]) -> list[list[str]]:
    columns = [np.mean([class_iou(cell.counts.sum(axis=0)) for cell in held], axis=0) for held in cells.values()]
    classes = len(columns[0])
    shown = [*names, *(str(label) for label in range(len(names), classes))]
    return [[shown[label], *(_number(100 * column[label]) for column in columns)] for label in range(classes)]


def _band_line(kind: str, cells: Sequence[CellRecord]) -> list[str]:
    pooled = np.mean([mean_iou(cell.bands.sum(axis=0)) for cell in cells], axis=0)
    return [_title(kind), *(_number(100 * value) for value in pooled)]


def _number(value: float) -> str:
    return number(float(value)) if np.isfinite(value) else NOT_MEASURED
