"""Error consistency against the facts' toy, the published tables' formula and brute force."""

import numpy as np
import pytest

from holdfast.errors import HoldfastError
from holdfast.metrics.consistency import error_consistency, kappa
from holdfast.records.records import CellRecord, Records


def records(right, *, name="clean", family="clean", **header):
    right = np.asarray(right)
    ids = np.array([f"{place:04d}" for place in range(len(right))])
    fields = {"predictions": np.where(right, 3, 4), "confidences": np.ones(len(right))}
    cell = CellRecord(ids, np.full(len(right), 3), fields, header={"cell": name, "family": family, "kind": ""})
    return Records.of({"task": "classification", **header}, {name: cell})


def brute(one, other):
    observed = np.mean(one == other)
    expected = one.mean() * other.mean() + (1 - one.mean()) * (1 - other.mean())
    return (observed - expected) / (1 - expected)


def test_the_toy_of_the_facts():
    one, other = np.array([1, 1, 0, 0, 1, 0, 1, 1, 0, 1]), np.array([1, 0, 0, 1, 1, 0, 1, 1, 1, 1])
    found = error_consistency(records(one), records(other))
    assert found.value == pytest.approx(0.3478260870, abs=1e-9)
    assert found.low < found.value < found.high


def test_brute_force_and_the_interval_of_many_draws():
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(60):
        shared = rng.random(400) < 0.5
        one, other = (np.where(rng.random(400) < 0.6, shared, rng.random(400) < 0.5) for _ in range(2))
        found = error_consistency(records(one), records(other))
        assert found.value == pytest.approx(brute(one, other), abs=1e-9)
        inside += found.low <= 0.36 <= found.high  # both follow the shared draw with probability 0.6
    assert inside >= 52


def test_two_that_are_always_right_agree():
    assert kappa(1.0, 1.0, 1.0) == 1
    assert error_consistency(records(np.ones(9)), records(np.ones(9))).value == 1


def test_other_answers_and_missing_cells_are_refused():
    mapped = {"classes": "all", "aggregation": "none", "outputs": 1000, "mapped": 10, "digest": "a"}
    with pytest.raises(HoldfastError, match="among the same answers"):
        error_consistency(records(np.ones(3)), records(np.ones(3), class_map=mapped))
    with pytest.raises(HoldfastError, match="that both records have, got 'fog/1'"):
        error_consistency(records(np.ones(3)), records(np.ones(3)), "fog/1")
