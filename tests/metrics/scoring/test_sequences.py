"""Scores of perturbation sequences: mFP, mFR and T5D of hand-counted flips."""

import numpy as np
import pytest

from holdfast.corruptions.sequences import TEST_SEQUENCES
from holdfast.metrics import (
    mean_flip_rate,
)
from holdfast.metrics.summary import summarise
from holdfast.published import published
from holdfast.records import CellRecord
from tests.records.making_records import cell, names, records


def sequences(flips, *, frames=31, kinds=TEST_SEQUENCES):
    """Per kind one sequence that answers 1 in its first ``flips[kind]`` odd frames and 0 elsewhere."""
    cells = {}
    for kind, count in zip(kinds, flips, strict=True):
        predictions = np.zeros((1, frames), np.int64)
        predictions[0, 1 : 2 * count : 2] = 1
        top_five = np.tile(np.arange(5), (1, frames, 1))
        top_five[0, predictions[0] == 1] = [1, 0, 2, 3, 4]
        shape = predictions.shape
        fields = {"confidences": np.ones(shape), "nll": np.zeros(shape), "top5": np.ones(shape, bool)}
        fields |= {"predictions": predictions, "top_five": top_five}
        cells[f"sequence/{kind}"] = CellRecord(names(1), np.zeros(1, np.int64), fields)
    return cells


def test_flips_and_distances_by_hand():
    summary = summarise(records(sequences([3] * 10)), intervals=False)
    # three bright frames of 30: noise differs from frame 0 three times; elsewhere each is a way there and a way back
    assert summary["fp/gaussian_noise"].value == pytest.approx(100 * 3 / 30)
    assert summary["fp/rotate"].value == pytest.approx(100 * 6 / 30)
    assert summary["mfp"].value == pytest.approx(100 * (2 * 3 + 8 * 6) / 10 / 30)
    # swapping the first two classes moves each by one
    assert summary["t5d/rotate"].value == pytest.approx(2 * 6 / 30)
    assert summary["t5d"].value == pytest.approx(2 * (2 * 3 + 8 * 6) / 10 / 30)
    assert "mfr" not in summary


def test_mfr_and_mt5d_divide_by_a_baseline():
    ours, base = records(sequences([3] * 10)), records(sequences([6] * 10), model="base")
    summary = summarise(ours, baseline=base, intervals=False)
    assert summary["mfr"].value == pytest.approx(50)
    assert summary["mt5d"].value == pytest.approx(50)
    assert summarise(base, baseline=base, intervals=False)["mfr"].value == pytest.approx(100)


def test_resnet50s_quoted_flips_give_its_published_rate():
    table = published("alexnet")["flip_probabilities"]
    assert mean_flip_rate(table["resnet50"], baseline=table["values"]) == pytest.approx(58.0, abs=0.005)
    summary = summarise(records(sequences([3] * 10), label="official"), intervals=False)
    by_hand = {kind: (3 if "noise" in kind else 6) / 30 for kind in TEST_SEQUENCES}
    assert summary["mfr"].value == pytest.approx(mean_flip_rate(by_hand, baseline=table["values"]))
    assert "quoted" in summary["mfr"].note


def test_missing_sequences_are_said():
    summary = summarise(records(sequences([1] * 9, kinds=TEST_SEQUENCES[:9])), intervals=False)
    assert summary["mfp_partial"].missing == ("sequence/scale",)
    assert "t5d_partial" in summary


@pytest.mark.parametrize("top_five", [None, np.tile(np.arange(3), (1, 31, 1))])
def test_sequences_without_five_classes_have_flips_alone(top_five):
    cells = {
        name: cell(held.predictions == 0, cell=name, top_five=top_five) for name, held in sequences([1] * 10).items()
    }
    summary = summarise(records(cells), intervals=False)
    assert "mfp" in summary
    assert not [name for name in summary.scores if "t5d" in name]
