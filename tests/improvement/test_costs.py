"""What candidates cost by the clock, from times of the processor, whose speed does not depend on other work."""

import pytest
import torch

from holdfast.data import open_data
from holdfast.improvement.costs import MeasuringCost, TrainingCost, by_the_clock, levelled, measuring_cost
from holdfast.runtime.dry_run import Seconds
from tests.evaluation.toys import ByLevel

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU's work is timed by the clock")


def test_evaluations_are_as_slow_as_all_of_them_together_were():
    few, many = (MeasuringCost(1.0, 0.1), Seconds(2.0, 5.0)), (MeasuringCost(2.0, 0.4), Seconds(6.0, 15.0))
    assert by_the_clock([few, many]) == [MeasuringCost(2.5, 0.25), MeasuringCost(5.0, 1.0)]
    assert by_the_clock([(MeasuringCost(1.0, 0.1), Seconds(0.0, 0.0))]) == [MeasuringCost(1.0, 0.1)]


def test_trainings_that_need_as_much_of_the_processor_cost_the_same():
    costs = {
        "plain": TrainingCost(start=1.0, epoch=30.0, steps=40, processor=10.0),
        "low-lr": TrainingCost(start=3.0, epoch=10.0, steps=40, processor=10.0),
    }
    assert {(cost.start, cost.epoch) for cost in levelled(costs).values()} == {(1.0, 20.0)}


def test_an_evaluation_is_extrapolated_from_two_and_costs_more_for_more_images(tmp_path):
    cost, took = measuring_cost(ByLevel(10, 25), open_data("digits:test"), ["quick"], amp=False, out=tmp_path)
    assert took.processor > 0
    assert 0.05 <= cost.start < cost.of(10) < cost.of(1000)
    assert cost.of(16) <= 2 * took.processor
