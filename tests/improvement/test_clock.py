"""The wall clock of a budget: it runs while something is trained or measured, also over several attempts."""

import pytest

from holdfast.errors import HoldfastError
from holdfast.improvement.clock import Clock, parse_budget


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400), ("1d", 86400)])
def test_budgets_are_times(text, seconds):
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "-5m", "0s", "2 weeks", "nanh", "infh"])
def test_other_budgets_are_refused(text):
    with pytest.raises(HoldfastError, match="--budget must be a wall time such as 10m"):
        parse_budget(text)


def test_a_clock_goes_on_where_it_was_stopped(tmp_path):
    for _ in range(2):
        clock = Clock(tmp_path / "clock.json")
        with pytest.raises(KeyboardInterrupt), clock.counting("train"):
            raise KeyboardInterrupt
        clock.spent["train"] += 1
        with clock.counting("train"):
            pass
    assert 2 <= Clock(tmp_path / "clock.json").elapsed < 3
