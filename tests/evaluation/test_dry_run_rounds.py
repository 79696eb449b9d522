"""The dry run of an evaluation that stops early: how many passes usual scores need."""

from dataclasses import replace

import numpy as np
import pytest

from holdfast import Until
from holdfast.evaluation.anytime import Search
from holdfast.evaluation.dry_run import dry_run_report
from holdfast.evaluation.dry_run_rounds import forecast_passes
from holdfast.evaluation.order import Order
from holdfast.evaluation.rounds import Rounds
from holdfast.evaluation.setup import EvaluationRequest
from holdfast.evaluation.until import Goal
from holdfast.metrics.scoring.base import ScoreDefinition
from tests.evaluation.toys import Brightest, colours


def search(until, *, images=50_000, cells=75, clean=True, common=True, used=None):
    names = tuple(f"cell {number}" for number in range(cells + clean))
    formula = ScoreDefinition("mean", "mean", "%", "high", "", lambda means: 0.0)
    goal = Goal(formula, until.goals.get("", 0.0), names[:cells] if used is None else names[:used], common)
    rounds = Rounds(Order(np.arange(images), cells), tuple(range(cells)), cells if clean else None)
    return Search(until, (goal,), rounds, (), names)


def test_half_a_point_of_the_mean_over_imagenet_c_takes_one_percent():
    passes = forecast_passes(search(Until(0.5)))
    corrupted = passes / 2  # as many clean ones
    assert 0.005 < corrupted / 3_750_000 < 0.012


def test_twice_the_precision_takes_four_times_the_passes():
    assert forecast_passes(search(Until(1.0))) == pytest.approx(4 * forecast_passes(search(Until(2.0))), rel=0.01)


def test_what_cannot_be_reached_takes_all_passes_and_never_more():
    assert forecast_passes(search(Until(0.5), images=1000)) == 76_000
    assert forecast_passes(search(Until(0.01))) == 3_800_000


def test_a_goal_of_five_cells_adds_images_to_these_only():
    few = forecast_passes(search(Until(4.0), common=False, used=5))
    assert few < forecast_passes(search(Until(4.0))) + 8 * 150
    assert few > 8 * 150


def test_a_goal_out_of_reach_is_named_for_errors_in_percent_of_a_baseline_too():
    one, two = search(Until(1.0), images=1000), search(Until({"mce": 1.0}), images=1000)
    formula = ScoreDefinition("mce", "mCE", "% of AlexNet", "low", "", lambda means: 0.0)
    errors = replace(two, goals=(Goal(formula, 1.0, two.goals[0].cells),))
    assert "mean is at best about ±1.9; if ±1 is out of reach" in " ".join(one.notes())
    assert "mCE is at best about ±2.6; if ±1 is out of reach" in " ".join(errors.notes())
    assert not list(replace(errors, goals=(Goal(formula, 3.0, two.goals[0].cells),)).notes())


def test_a_budget_is_the_most(tmp_path):
    assert forecast_passes(search(Until(0.1, budget=5000))) == 5000
    assert forecast_passes(search(Until(budget=5000))) == 5000


def test_the_report_names_both_times_and_leaves_nothing(tmp_path):
    request = EvaluationRequest(Brightest(), colours(60), "clean,corruptions-135,pgd5", tmp_path / "out", workers=0)
    lines = "\n".join(dry_run_report(request, Until(9)).lines())
    assert "of 2,760 passes" in lines
    assert "full: " in lines
    assert "to ±9: about " in lines
    assert "not measured, because no goal names them: pgd5" in lines
    assert not (tmp_path / "out").exists()
