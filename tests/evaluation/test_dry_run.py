"""Dry run of an evaluation: its plan, and the time of the real runner on a few images, in a temporary folder."""

from holdfast.evaluation import dry_run as evaluation_forecast
from holdfast.evaluation.setup import EvaluationRequest
from tests.evaluation.toys import ByLevel


def test_an_attack_that_takes_too_long_for_a_dry_run_gives_a_lower_bound(monkeypatch):
    monkeypatch.setattr(evaluation_forecast, "ATTACKING", 0.0)
    found = evaluation_forecast.dry_run_report(
        EvaluationRequest(ByLevel(10, 20), "digits:test", "clean,pgd5", limit=8, workers=0)
    )
    assert found.at_least
    assert "at least" in "\n".join(found.lines())
