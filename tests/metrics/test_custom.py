"""A metric of one's own: its definitions and its quantities are those of its task only."""

from types import SimpleNamespace

import numpy as np
import pytest

from holdfast.cells import CLEAN, corruption_cell
from holdfast.metrics import custom
from holdfast.metrics.scoring.base import ScoreDefinition, column


@pytest.fixture
def sure(monkeypatch):
    monkeypatch.setattr(custom, "METRICS", {})

    def formulas(cells):
        keys = [column(cell.name, "sure") for cell in cells if cell.family == "clean"]
        return [ScoreDefinition("sure", "sure", "%", "high", "above ½", lambda m: 0, reads=(key,)) for key in keys]

    return custom.register_metric("sure", formulas, "a line", columns=lambda cell: {"sure": cell.confidences > 0.5})


def test_its_scores_are_those_of_the_cells(sure):
    assert {"sure": sure} == custom.METRICS
    (found,) = custom.own_formulas([CLEAN, corruption_cell("fog", 1)], task="classification")
    assert found.reads == (("clean", "sure"),)
    assert custom.own_formulas([corruption_cell("fog", 1)], task="classification") == []
    assert custom.own_formulas([CLEAN], task="detection") == []


def test_its_quantities_are_computed_for_cells_of_its_task(sure):
    cell = SimpleNamespace(task="classification", confidences=np.array([0.2, 0.9]))
    assert custom.own_columns(cell)["sure"].tolist() == [False, True]
    assert custom.own_columns(SimpleNamespace(task="segmentation")) == {}
