"""Record sets of segmentation and detection with a share of right answers."""

import numpy as np

from holdfast.cells import CLEAN
from holdfast.metrics.iou import BANDS
from holdfast.records.detections import FIELDS
from holdfast.records.records import CellRecord, Records
from tests.gate.test_verdicts import KNOWN
from tests.records.making_records import names

COUNT = 60


def segmentation(*, right: float) -> Records:
    """Two classes of 500 pixels each in every image, of which a share near ``right`` is right."""
    true = np.array([500, 500])
    both = np.round(true * right).astype(int) + np.arange(COUNT)[:, None] % 7
    predicted = both + (true - both)[:, ::-1]
    counts = np.stack([np.broadcast_to(true, both.shape), predicted, both], axis=1)  # images, 3, classes
    fields = {"counts": counts, "bands": np.stack([counts] * (len(BANDS) + 1), axis=1), "boundary": counts}
    return _records("segmentation", fields, model=f"right {right}", classes=2, class_names=["road", "sky"])


def detection(*, right: float) -> Records:
    """One box in every image, found in a share of them and missed by far in the others."""
    found = np.arange(COUNT) < right * COUNT
    fields = {
        name: tuple(np.empty((0, 4) if "boxes" in name else 0, kind) for _ in names(COUNT))
        for name, kind in FIELDS.items()
    }
    box = np.array([[10, 10, 40, 40]])
    fields |= {
        "size": np.full((COUNT, 2), 100, np.int32),
        "masked": np.zeros(COUNT, np.uint8),
        "boxes": tuple((box + (0 if hit else 50)).astype(np.float32) for hit in found),
        "labels": (np.zeros(1, np.int32),) * COUNT,
        "scores": (np.full(1, 0.9, np.float32),) * COUNT,
        "true_boxes": (box.astype(np.float64),) * COUNT,
        "true_labels": (np.zeros(1, np.int32),) * COUNT,
        "true_areas": (np.full(1, 900.0),) * COUNT,
        "true_crowds": (np.zeros(1, np.uint8),) * COUNT,
    }
    return _records("detection", fields, model=f"right {right}", classes=1, class_names=["thing"])


def _records(task: str, fields: dict, *, model: str, **header) -> Records:
    cell = CellRecord(names(COUNT), np.zeros(COUNT, np.int64), fields, header=CLEAN.plain(), task=task)
    about = {**KNOWN, "task": task, "data": task, "model_fingerprint": model, **header}
    return Records.of(about, {"clean": cell})
