"""What breaks in detectors and segmenters, as the report shows it."""

import numpy as np
import pytest

from holdfast.data.scenes import open_scene_objects
from holdfast.evaluation.evaluate import evaluate
from holdfast.metrics.detection_errors import DETECTIONS, breakage
from holdfast.metrics.iou import class_iou
from holdfast.models.segmenter import segmenter
from holdfast.reporting.page import report
from holdfast.reporting.runs import read_runs
from holdfast.reporting.sections.error_types import breaks_section
from tests.tasks.detectors import Finder


@pytest.fixture(scope="module")
def detections(tmp_path_factory):
    model = Finder(open_scene_objects("test,3", split="test"))
    return evaluate(model, "scene-objects:test,3", "clean", out=tmp_path_factory.mktemp("d"), workers=0, show=False)


def test_a_detectors_errors_are_those_of_its_records(detections):
    section = breaks_section(read_runs([detections]))
    errors, sizes = section.tables  # of one cell there is nothing by severity
    told = breakage(detections.cells["clean"].fields)
    shares = 100 * told.objects[0] / told.objects[0].sum()
    assert errors.rows[0].name == "clean"
    assert [float(value) for value in errors.rows[0].cells[:4]] == pytest.approx(shares, abs=0.051)
    assert sum(int(row.cells[0]) for row in sizes.rows) == told.objects[0].sum()
    assert sizes.rows[0].name == "small, clean"
    assert "error types" in report([detections])


def test_a_segmenters_classes_stand_beside_each_other_clean_and_corrupted(tmp_path):
    model = segmenter("fan_mini_4_p4_hybrid", num_classes=11).eval()
    records = evaluate(model, "scenes:test,32x48,2", "clean,corruptions-135", out=tmp_path, workers=0, show=False)
    classes, edges = breaks_section(read_runs([records])).tables
    assert [row.name for row in classes.rows][:2] == ["clean", "motion blur"]
    assert len(classes.rows) == 1 + 16
    assert [classes.head, *(column.label for column in classes.columns)] == [
        "corruption",
        "background",
        *map(str, range(10)),
    ]
    fog = 100 * np.mean([class_iou(records.cells[f"fog/{s}"].counts.sum(axis=0)) for s in (1, 3, 5)], axis=0)
    place = [row.name for row in classes.rows].index("fog")
    assert float(classes.rows[place].cells[0]) == pytest.approx(fog[0], abs=0.51)
    assert classes.shades[place][0] == pytest.approx(100 - fog[0], abs=0.051)  # its colour
    assert edges.columns[0].label.startswith("mIoU ≤")
    counted, sure, right = records.cells["clean"].calibration.sum(axis=0)
    assert counted.sum() == 2 * 32 * 48
    assert float(edges.rows[0].cells[-1]) == pytest.approx(100 * np.abs(sure - right).sum() / counted.sum(), abs=0.051)
    assert f'style="--error: {classes.shades[place][0]}"' in report([records])


def test_of_several_severities_errors_are_told_by_severity_size_and_cell(tmp_path):
    model = Finder(open_scene_objects("test,2", split="test"))
    records = evaluate(model, "scene-objects:test,2", "clean,corruptions-135", out=tmp_path, workers=0, show=False)
    kinds, severities, sizes, every = breaks_section(read_runs([records])).tables
    assert [row.name for row in severities.rows] == ["clean", "severity 1", "severity 3", "severity 5"]
    assert {row.name.split(", ")[1] for row in sizes.rows} == {row.name for row in severities.rows}
    assert len(kinds.rows) == 1 + 15
    assert len(every.rows) == 1 + 3 * 15
    assert every.aside
    told = breakage(records.cells["fog/5"].fields)
    cells = next(row.cells for row in every.rows if row.name == "fog 5")
    assert [float(value) for value in cells[:4]] == pytest.approx(
        100 * told.objects[0] / told.objects[0].sum(), abs=0.051
    )
    objects = told.objects[0].sum()
    assert float(cells[4]) == pytest.approx(100 * told.detections[DETECTIONS.index("background")] / objects, abs=0.051)
