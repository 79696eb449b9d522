"""Scores of whole sets in the report: curves by severity, cells, calibration of pixels, the papers' rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from holdfast.data.scenes import open_scene_objects
from holdfast.evaluation.evaluate import evaluate
from holdfast.metrics.average_precision import record_scores
from holdfast.metrics.calibration import expected_calibration_error, pixel_calibration, pixel_error
from holdfast.metrics.iou import mean_iou
from holdfast.metrics.jackknife import image_groups
from holdfast.models.segmenter import segmenter
from holdfast.published import published
from holdfast.reporting.comparable import data_sets
from holdfast.reporting.figures.severity import severity_curve, severity_figures
from holdfast.reporting.runs import read_runs
from holdfast.reporting.sections.heat_maps import heat_maps
from holdfast.reporting.sections.published_tables import paper_table
from tests.tasks.detectors import Finder


@pytest.fixture(scope="module")
def detected(tmp_path_factory):
    model = Finder(open_scene_objects("test,64x80,3", split="test"))
    folder = tmp_path_factory.mktemp("d")
    found = evaluate(model, "scene-objects:test,64x80,3", "clean,corruptions-135", out=folder, workers=0, show=False)
    return found.only(["clean", *(f"{kind}/{severity}" for kind in ("fog", "contrast") for severity in (1, 3, 5))])


@pytest.fixture(scope="module")
def segmented(tmp_path_factory):
    torch.manual_seed(0)
    model = segmenter("fan_mini_4_p4_hybrid", num_classes=11).eval()
    folder = tmp_path_factory.mktemp("s")
    return evaluate(model, "scenes:test,32x48,3", "clean,corruptions-135", out=folder, workers=0, show=False)


def test_cells_are_scored_as_sets_not_image_by_image(detected, segmented):
    (objects,), (maps,) = (heat_maps(data_sets(read_runs([each]))[0]) for each in (detected, segmented))
    assert objects.words.startswith("Box AP")
    assert maps.words.startswith("mIoU")
    fog = 100 * record_scores(detected.cells["fog/5"].fields)["bbox"]["AP"]
    assert shown(objects, "fog/5").error == pytest.approx(100 - fog, abs=0.051)
    contrast = 100 * mean_iou(segmented.cells["contrast/3"].counts.sum(axis=0))
    assert shown(maps, "contrast/3").error == pytest.approx(100 - contrast, abs=0.051)
    assert shown(maps, "contrast/2").error is None  # not measured


def shown(heat, name):
    return next(cell for group in heat.groups for row in group.rows for cell in row.cells if cell.name == name)


@pytest.mark.parametrize("name", ["detected", "segmented"])
def test_curves_are_means_over_kinds_with_bands_and_what_is_retained_of_clean(name, request):
    records = request.getfixturevalue(name)
    (data,) = data_sets(read_runs([records]))
    curve = severity_curve(data.baseline)
    assert list(curve.values) == [0, 1, 3, 5]
    cells = [cell for cell in records.cells.values() if cell.spec.severity == 3]
    assert curve.values[3][0] == pytest.approx(100 * np.mean([score_of_set(cell) for cell in cells]))
    assert len(curve.values[3]) == 1 + image_groups(cells[0].ids).count
    kept = curve.retained().values
    assert list(kept) == [1, 3, 5]
    assert kept[5][0] == pytest.approx(100 * curve.values[5][0] / curve.values[0][0])


def test_what_is_retained_at_one_severity_is_no_curve(detected):
    kinds = ("fog", "contrast")
    one, all_three = (
        data_sets(read_runs([detected.only(["clean", *(f"{kind}/{s}" for kind in kinds for s in severities)])]))[0]
        for severities in ((3,), (1, 3, 5))
    )
    assert [figure.name for figure in severity_figures(one, anchor="d")] == ["d-severity"]
    assert [figure.name for figure in severity_figures(all_three, anchor="d")] == ["d-severity", "d-retention"]


def score_of_set(cell):
    if cell.task == "segmentation":
        return mean_iou(cell.counts.sum(axis=0))
    return record_scores(cell.fields)["bbox"]["AP"]


def test_the_calibration_of_pixels_adds_up_over_images_to_that_of_all_pixels():
    rng = np.random.default_rng(0)
    sure, right = rng.uniform(0.001, 0.999, (2, 500)), rng.random((2, 500)) < 0.6
    parts = np.stack([pixel_calibration(s, r) for s, r in zip(sure, right, strict=True)])
    assert parts[:, 0].sum() == 1000
    together = expected_calibration_error(sure.ravel(), right.ravel(), bins=10)
    assert float(pixel_error(parts.sum(axis=0))) == pytest.approx(together)
    assert float(pixel_error(parts.mean(axis=0))) == pytest.approx(together)


def test_a_segmenter_knows_how_sure_its_pixels_are(segmented):
    sums = segmented.cells["clean"].calibration.astype(np.float64).sum(axis=0)
    assert segmented.summary()["ece"].value == pytest.approx(100 * float(pixel_error(sums)), abs=1e-3)
    fields = {name: values for name, values in segmented.cells["clean"].fields.items() if name != "calibration"}
    older = replace(segmented, by_view={"": {"clean": replace(segmented.cells["clean"], fields=fields)}})
    assert "ece" not in older.summary()  # records of before are read all the same
    assert "clean" in older.summary()


def test_the_papers_rows_stand_below_ours_with_their_tables_on_the_same_data_alone(segmented):
    assert paper_table(data_sets(read_runs([segmented]))[0]) is None  # scenes are nobody's benchmark
    header = {**segmented.header, "data": "cityscapes:leftImg8bit,val", "classes": 19}
    (data,) = data_sets(read_runs([segmented]))
    entries = [replace(entry, records=replace(entry.records, header=header)) for entry in data.entries]
    table = paper_table(replace(data, spec=header["data"], entries=entries))
    assert [row.cells[0] for row in table.rows].count("measured here") == 1
    assert len(table.rows) == 1 + len(published("scores")["segmentation"])
    fan = next(row for row in table.rows if row.name == "FAN-L-Hybrid")
    printed = [column.text(cell) for column, cell in zip(table.columns, fan.cells, strict=True)]
    assert printed == ["FAN, Table 9", "82.3", "68.7", "83.5"]
