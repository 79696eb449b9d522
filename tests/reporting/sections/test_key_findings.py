"""Key findings of a report in words: computed sentences about scores and differences."""

import re

import numpy as np

from holdfast.metrics.comparison import compare_all
from holdfast.reporting.comparable import data_sets
from holdfast.reporting.runs import read_runs
from holdfast.reporting.sections.decision import against_baseline
from holdfast.reporting.sections.key_findings import against, alone
from holdfast.reporting.sections.what_next import what_next
from tests.records.making_records import cell, records
from tests.reporting.helpers import make_run
from tests.reporting.sections.test_decision import (
    CELLS,
    card_of,
)


def test_of_models_that_are_always_wrong_none_has_the_highest_score_or_a_weakest_kind(tmp_path):
    data, pairs, found = card_of(*(make_run(tmp_path / name, hold=-10, cells=CELLS, count=50) for name in "ab"))
    assert found.title == "No clear winner"
    assert re.match(r"Every model has accuracy under corruption \(.*\) 0\.0: train longer", found.reason)
    assert what_next(data, pairs, found, examples=False) == []  # more images or seeds would not help
    assert "hardest" not in alone(data.baseline, data, "fog").text


def test_a_small_sure_loss_reads_as_no_worse_by_more_than_the_margin():
    count = 4000
    right = np.arange(count) % 20 > 0
    lost = right & (np.arange(count) % 400 != 7)  # 0.25 points less, on the same images
    models = [records({"clean": cell(each)}, model=name) for name, each in (("start", right), ("tuned", lost))]
    (data,) = data_sets(read_runs(models))
    pairs = compare_all([entry.records for entry in data.shown_models])
    table = against_baseline(data, pairs, 0)
    (candidate,) = table.candidates
    (chip,) = candidate.chips
    assert (chip.word, chip.value) == ("no worse", "−0.2")
    assert candidate.verdicts["clean"].interval.high < 0
    (sentence,) = against(table, data, pairs)
    assert sentence.text.startswith("tuned is no worse than start by more than 0.5 points on clean images: accuracy")
    assert sentence.verdict == "plain"
