"""Records made by hand, so that scores can be counted by hand."""

from dataclasses import replace
from functools import cache

import numpy as np

from holdfast.cells import CLEAN, attack_cell, corruption_cell, sequence_cell, set_cell
from holdfast.corruptions import SEVERITIES, STANDARD
from holdfast.records.records import CellRecord, Records


@cache
def names(count):
    return np.array([f"image {number}" for number in range(count)])


def cell(right, *, ids=None, top5=None, nll=0.5, confidence=0.75, top_five=None, **header):
    """A cell of which image i is right where ``right[i]``: (N,), or (N, F). All targets are 0."""
    right = np.asarray(right, dtype=bool)
    shape = right.shape
    fields = {
        "predictions": np.where(right, 0, 1),
        "confidences": np.full(shape, confidence, np.float32),
        "nll": np.full(shape, nll, np.float32),
        "top5": right if top5 is None else np.asarray(top5, dtype=bool),
    }
    return CellRecord(
        ids=names(len(right)) if ids is None else np.asarray(ids),
        targets=np.zeros(len(right), np.int64),
        fields=fields | ({} if top_five is None else {"top_five": top_five}),
        header=header,
    )


def spec_named(name):
    """What a cell of that name is, where a test does not say."""
    kind, _, severity = name.partition("/")
    if kind == "sequence":
        return sequence_cell(severity)
    if severity:
        return corruption_cell(kind, int(severity))
    return CLEAN if name == "clean" else set_cell(name) if name.startswith("imagenet") else attack_cell(name)


def described(cells):
    """The cells with what they are in their headers."""
    return {
        name: replace(held, header={"cell": name, **spec_named(name).plain(), **held.header})
        for name, held in cells.items()
    }


def share(errors, *, count):
    """Whether each of ``count`` images is right, so that ``errors`` of them (a fraction) are wrong."""
    wrong = round(errors * count)
    assert abs(wrong - errors * count) < 1e-6, "choose a count that the errors divide"
    return np.arange(count) >= wrong


def corrupted(errors, *, count):
    """Cells of a benchmark from errors, kind by kind, severity 1 first."""
    return {
        f"{kind}/{severity}": cell(share(error, count=count))
        for kind, row in errors.items()
        for severity, error in zip(SEVERITIES, row, strict=True)
    }


def flat(error, *, kinds=STANDARD):
    return {kind: [error] * 5 for kind in kinds}


def records(cells, *, model="timm:some_model", view="", **header):
    known = {"model": model, "data": "folder:val", "preset": "imagenet", "classes": 1000, "label": "on-the-fly"}
    return Records.of({**known, **header}, {view: described(cells)})
