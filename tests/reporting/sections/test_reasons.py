"""Why a model fails under a kind: counted by hand from answers, label maps and objects."""

from dataclasses import replace

import numpy as np
import pytest

from holdfast.records.records import load_records
from holdfast.reporting.comparable import data_sets
from holdfast.reporting.runs import read_runs
from holdfast.reporting.sections.reasons import REASONS, reason
from tests.reporting.helpers import make_run

CELLS = ("clean", "fog/1", "fog/2")


@pytest.fixture
def entry(tmp_path):
    run = make_run(tmp_path / "run", hold=0.3, cells=CELLS, class_names=[f"digit {n}" for n in range(10)])
    (data,) = data_sets(read_runs([run]))
    return data.baseline


def test_the_most_frequent_wrong_answer_is_named_with_the_confidence_of_wrong_answers(entry):
    answers, sure = [], []
    for name in CELLS[1:]:
        cell = entry.records.cells[name]
        wrong = cell.predictions != cell.targets
        answers += cell.predictions[wrong].tolist()
        sure += cell.confidences[wrong].tolist()
    most = max(set(answers), key=lambda label: (answers.count(label), -label))
    share, confidence = 100 * answers.count(most) / len(answers), 100 * np.mean(sure)
    expected = f"{share:.0f} % of its wrong answers are digit {most}, and wrong answers have a mean confidence of "
    assert reason(entry, "corruption", "fog") == f"{expected}{confidence:.0f} %"


def test_a_kind_without_errors_or_records_has_no_reason(entry):
    cell = entry.records.cells["fog/1"]
    right = replace(cell, fields={**cell.fields, "predictions": cell.targets})
    assert REASONS["classification"](entry.records, [right], None) == ""
    assert reason(entry, "corruption", "snow") == ""


class Counted:
    """A cell of which only the counts of a label map are asked."""

    def __init__(self, *both: int) -> None:
        """``both`` of 10 true and 10 predicted pixels agree, per class."""
        self.counts = np.array([[[10, 10, each] for each in both]]).swapaxes(1, 2)


def test_the_class_that_loses_most_iou_is_named(tmp_path):
    (records,) = load_records(make_run(tmp_path / "run", cells=("clean",), class_names=["sky", "road"]))
    tell = REASONS["segmentation"]
    assert tell(records, [Counted(9, 5)], Counted(9, 10)) == "road loses most, IoU 100.0 to 33.3"
    assert tell(records, [Counted(9, 5)], None) == ""
