"""Natural conditions whose names are also corruptions' names are scored as what they are."""

import numpy as np
import pytest

from holdfast.cells import CLEAN, condition_cell, corruption_cell
from holdfast.corruptions.severities import STANDARD
from holdfast.metrics.iou import KINDS
from holdfast.metrics.scoring.base import column
from holdfast.metrics.scoring.detection import detection_formulas
from holdfast.metrics.scoring.segmentation import cell_miou, corruption_formulas, count_keys
from holdfast.records.records import Records
from tests.records.making_records import cell, share

ACCURACIES = {"fog": 0.9, "snow": 0.8, "night": 0.5, "rain": 0.7}


def records_of(specs, right):
    cells = {s.name: cell(share(1 - r, count=10), **s.plain()) for s, r in zip(specs, right, strict=True)}
    return Records.of({"model": "m", "data": "acdc"}, cells)


def test_fog_and_snow_do_not_vanish():
    specs = [CLEAN, *map(condition_cell, ACCURACIES)]
    scores = records_of(specs, [1.0, *ACCURACIES.values()]).summary()
    assert scores["clean"].value == 100
    for name, accuracy in ACCURACIES.items():
        assert scores[f"condition/{name}"].value == pytest.approx(100 * accuracy)
        assert (scores[f"condition/{name}"].family, scores[f"condition/{name}"].kind) == ("condition", name)
    assert scores["mean_condition_accuracy"].value == pytest.approx(100 * np.mean(list(ACCURACIES.values())))
    assert scores["mean_condition_accuracy"].low <= scores["mean_condition_accuracy"].high
    assert not any(score.family == "corruption" for score in scores)


def test_the_condition_fog_and_the_corruption_fog_stand_side_by_side():
    specs = [CLEAN, condition_cell("fog"), *(corruption_cell("fog", severity) for severity in range(1, 6))]
    scores = records_of(specs, [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4]).summary(intervals=False)
    assert scores["condition/fog"].value == pytest.approx(90)
    assert scores["accuracy/fog"].value == pytest.approx(60)


def names_of(scores, words):
    return [score.name for score in scores if words in score.name]


def test_a_detector_at_one_severity_has_a_partial_mean_and_what_remains_of_the_clean_score():
    cells = [CLEAN, *(corruption_cell(kind, 3) for kind in STANDARD)]
    values = dict(zip((column(cell.name, "box_AP") for cell in cells), np.linspace(0.6, 0.2, len(cells)), strict=True))
    scores = {score.name: score for score in detection_formulas(cells, columns=values)}
    mean = np.mean(list(values.values())[1:])
    assert scores["mpc_partial"].compute(values) == pytest.approx(100 * mean)
    assert scores["rpc_partial"].compute(values) == pytest.approx(100 * mean / 0.6)
    assert scores["mpc_partial"].label == "box mPC (partial: severity 3)"
    assert scores["mpc_partial"].definition == "mean box AP over 15 kinds × 1 severity"
    assert len(scores["mpc_partial"].missing) == 15 * 4
    assert not names_of(detection_formulas(cells[:-1], columns=values), "mpc")  # a kind is missing


def test_a_segmenter_at_one_severity_has_a_partial_mean_and_papers_severities_a_score_of_their_own():
    measure = cell_miou(2)
    cells = [CLEAN, *(corruption_cell(kind, 3) for kind in KINDS)]
    counts = {key: 4.0 for cell in cells for key in count_keys(cell.name, classes=2)}
    scores = {score.name: score for score in corruption_formulas(cells, measure)}
    assert scores["mean_corruption_miou_partial"].compute(counts) == pytest.approx(100 * measure.of(counts, "fog/3"))
    assert scores["retention_partial"].label == "retention (partial: severity 3)"
    cells = [CLEAN, *(corruption_cell(kind, severity) for kind in KINDS for severity in (1, 2, 3))]
    found = corruption_formulas(cells, measure)
    assert "cityscapes_c_fan_released" in names_of(found, "cityscapes_c")
    assert not names_of(found, "mean_corruption")
