"""What breaks in detectors and segmenters, as the report shows it."""

import numpy as np
import pytest

from holdfast.data.scene_objects import open_scene_objects
from holdfast.evaluation.evaluate import evaluate
from holdfast.metrics.detection_errors import breakage
from holdfast.metrics.iou import class_iou
from holdfast.models.segmenter import segmenter
from holdfast.reporting.page import report
from holdfast.reporting.runs import read_runs
from holdfast.reporting.sections.breaks import breaks_section
from tests.tasks.detectors import Finder


@pytest.fixture(scope="module")
def detections(tmp_path_factory):
    model = Finder(open_scene_objects("test,3", split="test"))
    return evaluate(model, "scene-objects:test,3", "clean", out=tmp_path_factory.mktemp("d"), workers=0, show=False)


def test_a_detectors_errors_are_those_of_its_records(detections):
    section = breaks_section(read_runs([detections]))
    errors, sizes = section.tables
    told = breakage(detections.cells["clean"].fields)
    shares = 100 * told.objects[0] / told.objects[0].sum()
    assert errors.lines[0][0] == "clean"
    assert [float(value) for value in errors.lines[0][1:5]] == pytest.approx(shares, abs=0.051)
    assert sizes.lines[0][:2] == ["all", str(told.objects[0].sum())]
    assert "what became of the objects" in report([detections])


def test_a_segmenters_classes_stand_beside_each_other_clean_and_corrupted(tmp_path):
    model = segmenter("fan_mini_4_p4_hybrid", num_classes=11).eval()
    records = evaluate(model, "scenes:test,32x48,2", "clean,corruptions-135", out=tmp_path, workers=0, show=False)
    classes, edges = breaks_section(read_runs([records])).tables
    assert len(classes.lines) == 11
    assert len(classes.columns) == 1 + 1 + 16
    fog = [class_iou(records.cells[f"fog/{s}"].counts.sum(axis=0)) for s in (1, 3, 5)]
    place = list(classes.columns).index("fog")
    assert float(classes.lines[0][place]) == pytest.approx(100 * np.mean(fog, axis=0)[0], abs=0.051)
    assert edges.columns[1].startswith("mIoU ≤")
