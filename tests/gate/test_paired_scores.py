"""Paired scores: values in the order of the ids, and the images that every cell has."""

import numpy as np
import pytest

from holdfast.errors import HoldfastError
from holdfast.gate.paired_scores import make_paired_scores, names_digest, paired_scores_of
from tests.records.making_records import cell, records

IDS = ["d", "b", "a", "c"]


def test_values_are_in_the_order_of_the_ids_whatever_that_of_the_records():
    right = [True, False, True, False]
    (side,) = paired_scores_of(records({"clean": cell(right, ids=IDS)}))
    assert side.ids.tolist() == ["a", "b", "c", "d"]
    assert side.columns["clean", "right"].tolist() == [1, 0, 0, 1]
    assert side.digest == names_digest(["a", "b", "c", "d"]) != names_digest(["a", "b", "c"])
    assert (side.task, side.data, side.model, side.count) == ("classification", "folder:val", "timm:some_model", 4)


def test_images_that_one_cell_lacks_count_in_none_and_are_named():
    cells = {"clean": cell([True] * 4, ids=IDS), "pgd5": cell([True, False, True], ids=IDS[1:])}
    (side,) = paired_scores_of(records(cells))
    assert side.count == 3
    assert side.missing == ("d",)
    assert side.columns["pgd5", "right"].tolist() == [0, 1, 1]
    assert set(side.quantities) >= {("clean", "right"), ("pgd5", "right")}


def test_a_score_is_the_mean_of_its_columns():
    side = make_paired_scores(records({"clean": cell(np.arange(10) < 7)}))
    formula = next(each for each in side.formulas(["clean"], side.quantities) if each.name == "clean")
    means = {key: values.mean() for key, values in side.columns.items()}
    assert formula.compute(means) == pytest.approx(70)


def test_records_without_a_finished_cell_are_refused():
    with pytest.raises(HoldfastError, match="records of 'folder:val' must have a finished cell, got none"):
        make_paired_scores(records({}))
