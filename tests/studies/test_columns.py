"""Columns and verdicts against hand counts and plain loops."""

from dataclasses import replace

import numpy as np
import pytest

from holdfast.cells import corruption_cell
from holdfast.corruptions import C_BAR_SUITES, SEVERITIES
from holdfast.metrics.intervals import Interval
from holdfast.studies.columns import COLUMNS, available, formulas, scores, verdict
from holdfast.studies.results import RunResult


def run(seed, clean, corrupted, **measures):
    right = {"clean": np.array(clean, float)}
    right |= {f"fog/{s}": np.array(values, float) for s, values in enumerate(corrupted, 1)}
    return RunResult("r", seed, right, {k: np.asarray(v, float) for k, v in measures.items()}, {})


def test_scores_are_counted_by_hand():
    runs = [run(0, [1, 1, 1, 0], [[1, 0, 0, 0], [1, 1, 0, 0]]), run(1, [1, 1, 0, 0], [[0, 0, 0, 0], [1, 1, 0, 0]])]
    assert scores(COLUMNS["clean"], runs).mean == pytest.approx(62.5)
    assert scores(COLUMNS["corrupted"], runs).mean == pytest.approx((37.5 + 25) / 2)
    assert scores(COLUMNS["retention"], runs).mean == pytest.approx((100 * 0.375 / 0.75 + 100 * 0.25 / 0.5) / 2)
    assert scores(COLUMNS["clean"], runs).std == pytest.approx(np.std([75, 50], ddof=1))


def test_only_corruption_cells_count_as_corrupted():
    both = run(0, [1, 1], [[0, 1]])
    attacked = RunResult("r", 0, {**both.right, "pgd5": np.zeros(2), "occlusion-random": np.zeros(2)}, {}, {})
    assert formulas(attacked)["measured_corruption_accuracy"].cells == ("fog/1",)
    assert scores(COLUMNS["corrupted"], [attacked]).mean == pytest.approx(50)


def test_c_bar_is_a_column_of_its_own():
    cells = [corruption_cell(kind, severity) for kind in C_BAR_SUITES["cifar-c-bar"] for severity in SEVERITIES]
    whole = run(0, [1, 1], [[1, 0]])
    right = {**whole.right, **{cell.name: np.array([0.0, 1.0]) for cell in cells[:-1]}, cells[-1].name: np.zeros(2)}
    header = {"cells": {cell.name: cell.plain() for cell in cells}, "cell_order": list(right)}
    both = replace(whole, right=right, header=header)
    assert scores(COLUMNS["corrupted"], [both]).mean == pytest.approx(50)
    assert scores(COLUMNS["c_bar"], [both]).mean == pytest.approx(49)
    assert list(available({"a": [both]})) == ["clean", "corrupted", "c_bar", "retention"]


def test_the_column_says_which_corruptions_were_measured():
    two = run(0, [1, 1], [[0, 1], [1, 1]])
    assert available({"a": [two]})["corrupted"].says == "mean accuracy over 1 corruptions at severity 1, 2, %"
    whole = run(0, [1, 1], [[0, 1]] * 5)
    assert available({"a": [whole]})["corrupted"].says == "mean accuracy over 1 corruptions × 5 severities, %"


def test_the_retention_of_nothing_is_undefined_never_zero():
    assert np.isnan(scores(COLUMNS["retention"], [run(0, [0, 0], [[0, 1]])]).mean)


def test_a_column_is_shown_only_if_every_run_can_fill_it():
    full, bare = run(0, [1], [[1]], stability=[0.5]), run(0, [1], [[1]])
    assert "stability" in available({"a": [full]})
    assert "stability" not in available({"a": [full], "b": [bare]})
    assert list(available({"b": [bare]})) == ["clean", "corrupted", "retention"]


def test_every_attack_of_a_study_is_a_column_of_its_name():
    plain = run(0, [1, 1], [[0, 1]])
    attacked = RunResult("r", 0, {**plain.right, "pgd5": np.zeros(2), "pgd:eps=2/255": np.array([0, 1.0])}, {}, {})
    found = available({"a": [attacked]})
    assert list(found) == ["clean", "corrupted", "retention", "pgd5", "pgd:eps=2/255"]
    assert scores(found["pgd:eps=2/255"], [attacked]).mean == pytest.approx(50)
    assert "pgd:eps=2/255" not in available({"a": [attacked], "b": [plain]})


@pytest.mark.parametrize(
    ("value", "low", "high", "expects", "said"),
    [
        (1, 0.5, 2, "higher", "holds"),
        (-1, -2, -0.5, "higher", "does not hold"),
        (-1, -2, -0.5, "lower", "holds"),
        (1, -0.5, 2, "higher", "not resolved"),
    ],
)
def test_verdicts(value, low, high, expects, said):
    assert verdict(Interval(value, low, high, 0.95), expects) == said
