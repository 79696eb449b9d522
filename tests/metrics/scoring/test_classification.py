"""Scores of classification by hand: accuracy, top-5, calibration, masks of an occlusion."""

import numpy as np
import pytest

from holdfast.metrics import (
    expected_calibration_error,
)
from holdfast.metrics.summary import summarise
from tests.records.making_records import cell, records, share


def test_attacks_and_other_sets_are_accuracies():
    cells = {"pgd5": cell(share(0.7, count=10)), "imagenet-a": cell(share(0.6, count=10))}
    summary = summarise(records(cells), intervals=False)
    assert summary["attack/pgd5"].value == pytest.approx(30)
    assert summary["imagenet_a"].value == pytest.approx(40)
    assert "200 classes" in summary["imagenet_a"].definition


def test_clean_scores_by_hand():
    right = [True, True, True, False]
    clean = cell(right, top5=[True, True, True, True], nll=0.25, confidence=0.5)
    summary = summarise(records({"clean": clean}))
    assert list(summary.scores) == ["clean", "top5", "nll", "ece"]
    assert summary["clean"].value == 75
    assert summary["top5"].value == 100
    assert summary["nll"].value == pytest.approx(0.25)
    assert summary["ece"].value == pytest.approx(25)  # says 0.5, is right in 0.75
    assert summary["ece"].value == pytest.approx(100 * expected_calibration_error([0.5] * 4, right))
    assert summary.images == 4
    assert summary["clean"].low <= 75 <= summary["clean"].high


def test_top5_says_nothing_among_five_classes():
    summary = summarise(records({"clean": cell([True, False])}, classes=5))
    assert "top5" not in summary
    assert "top5" in summarise(records({"clean": cell([True, False])}, classes=6))


def test_occlusion_says_how_its_masks_differ():
    masks = np.array([[True, True], [True, False], [False, False], [True, False]])  # 3 of 4, then 1 of 4
    summary = summarise(records({"occlusion-random": cell(masks)}), intervals=False)
    score = summary["attack/occlusion-random"]
    assert score.value == pytest.approx(50)
    assert score.note == "2 masks: 25.0 to 75.0, std 35.4"
