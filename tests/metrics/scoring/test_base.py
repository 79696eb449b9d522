"""Natural conditions whose names are also corruptions' names are scored as what they are."""

import numpy as np
import pytest

from holdfast.cells import CLEAN, condition_cell, corruption_cell
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
