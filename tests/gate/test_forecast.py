"""The forecast of a gate that stops early: rules that all images together cannot decide."""

import re

import numpy as np
import pytest

from holdfast.gate.forecast import forecast, round_up
from holdfast.gate.paired_scores import paired_scores_of
from holdfast.gate.rules import Rules, parse_rule
from tests.gate.test_verdicts import one_cell


def sides(count: int, share: float):
    return paired_scores_of(one_cell(np.arange(count) < share * count, model="old"))


def test_small_margins_stay_open_and_what_would_do_is_said() -> None:
    (line,) = forecast(sides(5000, 0.75), Rules(margin=0.5))
    assert line.startswith("clean no worse: an equally good model stays unresolved in most runs on 5,000 images")
    margin = float(re.search(r"a margin of ([\d.]+)", line)[1])
    images = int(re.search(r"about ([\d,]+) images", line)[1].replace(",", ""))
    assert not forecast(sides(5000, 0.75), Rules(margin=margin))
    assert not forecast(sides(images, 0.75), Rules(margin=0.5))


@pytest.mark.parametrize("rule", ["clean better", "clean >= 70", "clean no worse by more than 20"])
def test_other_rules_need_no_forecast(rule: str) -> None:
    assert not forecast(sides(5000, 0.75), Rules((parse_rule(rule),)))


def test_numbers_are_rounded_up_to_two_digits() -> None:
    assert [round_up(number) for number in (7.2, 123, 66_683, 100_000)] == [8, 130, 67_000, 100_000]
