"""Why a model fails under a kind of corruption, from its records: wrong answers, lost classes, missed objects."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from holdfast.metrics.detection_errors import OBJECTS, breakage
from holdfast.metrics.iou import class_iou
from holdfast.metrics.scoring.registry import scoring_of
from holdfast.records.records import CellRecord, Records
from holdfast.reporting.comparable import Entry
from holdfast.reporting.formatting import clean_name, number


def reason(entry: Entry, family: str, kind: str) -> str:
    """What goes wrong under this kind in a sentence without a full stop; empty if the records do not tell."""
    cells = [c for c in entry.records.cells.values() if c.spec.family == family and c.spec.kind == kind and len(c)]
    clean = entry.records.cells.get("clean")
    tell = REASONS.get(entry.records.task)
    return tell(entry.records, cells, clean) if tell is not None and cells else ""


def _wrong_answers(records: Records, cells: Sequence[CellRecord], clean: CellRecord | None) -> str:
    """The most frequent wrong answer, and how sure the wrong answers are."""
    rows = [scoring_of(records.task).rows(cell) for cell in cells]
    answers, right, sure = (np.concatenate([row[key] for row in rows]) for key in ("prediction", "right", "confidence"))
    if right.all():
        return ""
    labels, counts = np.unique(answers[~right], return_counts=True)
    name, share = _class_name(records, int(labels[counts.argmax()])), 100 * counts.max() / counts.sum()
    return f"{number(share, digits=0)} % of its wrong answers are {name}" + _confidence(sure[~right])


def _confidence(wrong: np.ndarray) -> str:
    return f", and wrong answers have a mean confidence of {number(100 * float(np.mean(wrong)), digits=0)} %"


def _lost_class(records: Records, cells: Sequence[CellRecord], clean: CellRecord | None) -> str:
    """The class that loses the most IoU."""
    if clean is None:
        return ""
    before = 100 * class_iou(clean.counts.sum(axis=0))
    after = 100 * np.mean([class_iou(cell.counts.sum(axis=0)) for cell in cells], axis=0)
    loss = np.nan_to_num(before - after, nan=0.0)
    worst = int(loss.argmax())
    if not loss[worst] > 0:
        return ""
    return f"{_class_name(records, worst)} loses most, IoU {number(before[worst])} to {number(after[worst])}"


def _missed_objects(records: Records, cells: Sequence[CellRecord], clean: CellRecord | None) -> str:
    """The most frequent error of the objects, with its share on clean images."""
    now, before = _outcomes(cells), _outcomes([clean] if clean is not None else [])
    worst = 1 + int(now[1:].argmax())
    if not now[worst] > 0:
        return ""
    words = {"class": "classified wrongly", "location": "badly localised", "missed": "missed"}[OBJECTS[worst]]
    against = f", against {number(before[worst], digits=0)} % on clean images" if before.any() else ""
    return f"{number(now[worst], digits=0)} % of the objects are {words}{against}"


def _outcomes(cells: Sequence[CellRecord]) -> np.ndarray:
    counts = np.sum([breakage(cell.fields).objects[0] for cell in cells], axis=0) if cells else np.zeros(len(OBJECTS))
    return np.asarray(100 * counts / max(counts.sum(), 1))


def _class_name(records: Records, label: int) -> str:
    names = records.header.get("class_names", ())
    return clean_name(names[label]) if label < len(names) else f"class {label}"


REASONS: Mapping[str, Callable[[Records, Sequence[CellRecord], CellRecord | None], str]] = {
    "classification": _wrong_answers,
    "segmentation": _lost_class,
    "detection": _missed_objects,
}
