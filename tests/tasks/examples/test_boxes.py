"""Example images of detection: true and detected boxes and masks drawn over the picture."""

import re

import numpy as np
import pytest
from PIL import Image

import holdfast
from holdfast import ComputeConfig
from holdfast.tasks.examples.boxes import BoxExamples
from tests.reporting.sections.test_examples import (
    QUICK,  # helper
    stored,  # helper
)
from tests.tasks.detectors import Finder, scenes


def test_detections_are_drawn_where_they_are(tmp_path):
    source = scenes(1)
    options = {"out": tmp_path, "compute": ComputeConfig(keep_examples=5), **QUICK}
    records = holdfast.evaluate(Finder(source), source, "coco-c-fan", **options)
    example = stored(records)[0]
    record = records.cells[example.cell]
    row = list(record.ids).index(example.id)
    kept = BoxExamples().recorded_answer(record, row)
    picture = Image.new("RGB", (80, 64), "black")
    drawn = np.asarray(BoxExamples().truth(picture, kept, source.classes).picture)
    x0, y0, _, _ = kept["true_boxes"][0].round().astype(int)
    assert drawn[y0 : y0 + 3, x0 : x0 + 3].any()
    assert not np.asarray(picture).any()
    assert BoxExamples().answer(picture, kept, source.classes).right == pytest.approx(record.right[row])
    text = holdfast.report(tmp_path)
    assert len(re.findall(r'<figure class="example"', text)) == len(stored(records))
