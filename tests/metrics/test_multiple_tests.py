"""Holm's procedure against its definition, and the errors of all verdicts together by simulation."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from holdfast.gate.verdicts import verdict_of
from holdfast.metrics.comparison import Difference, compare, compare_all
from holdfast.metrics.intervals import Interval, difference_interval
from holdfast.metrics.multiple_tests import BETTER, MARGIN, NO_WORSE, NOT_RESOLVED, WORSE, holm_levels, verdicts
from tests.records.making_records import cell, records, share

FREEDOM = 99


def difference(value: float, error: float, *, better: str = "high") -> Difference:
    half = stats.t.ppf(0.975, FREEDOM) * error
    interval = Interval(value, value - half, value + half, 0.95)
    return Difference("clean", "clean", "%", better, value, 0.0, interval, freedom=FREEDOM)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_holm_rejects_what_its_definition_rejects(p_values):
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    rejected = set()
    for step, i in enumerate(order):
        if p_values[i] > 0.05 / (len(order) - step):
            break
        rejected.add(i)
    levels = holm_levels(p_values)
    assert {i for i, (p, level) in enumerate(zip(p_values, levels, strict=True)) if p <= level} == rejected
    assert {levels[i] for i in range(len(levels)) if i not in rejected} <= {0.05 / max(1, len(order) - len(rejected))}


def test_p_values_are_those_of_the_t_test_on_pairs():
    rng = np.random.default_rng(3)
    one, other = rng.normal([[0.3], [0.0]], size=(2, 60))
    total = (one - other).sum()
    left = (total - (one - other)) / 59
    interval = difference_interval([total / 60, *left], images=60)
    found = Difference("x", "x", "%", "high", 0, 0, interval, freedom=59)
    assert found.p_value == pytest.approx(stats.ttest_rel(one, other).pvalue)
    assert found.at_level(0.95).low == pytest.approx(interval.low)
    assert found.at_level(1 - found.p_value).low == pytest.approx(0, abs=1e-9)


def test_words_follow_from_the_interval_and_the_margin():
    words = [v.word for v in verdicts([difference(5, 1), difference(0.1, 0.1), difference(-5, 1), difference(1, 3)])]
    assert words == [BETTER, NO_WORSE, WORSE, NOT_RESOLVED]
    assert [v.word for v in verdicts([difference(5, 1, better="low")])] == [WORSE]
    unknown = Difference("x", "x", "%", "high", 1, 0, Interval(1, float("nan"), float("nan"), 0.95), freedom=FREEDOM)
    assert [v.word for v in verdicts([unknown])] == [NOT_RESOLVED]


def test_a_loss_within_the_margin_is_no_worse_however_sure_it_is():
    sure, beyond = difference(-0.3, 0.05), difference(-0.6, 0.05)
    assert [v.word for v in verdicts([sure])] == [NO_WORSE]
    assert [v.word for v in verdicts([sure.reversed()])] == [BETTER]
    assert [v.word for v in verdicts([beyond])] == [WORSE]
    assert [v.word for v in verdicts([sure], margin=0.1)] == [WORSE]
    assert [v.word for v in verdicts([replace(sure, unit="nats")])] == [WORSE]  # the margin is in points
    assert [v.word for v in verdicts([difference(0.3, 0.05, better="low")])] == [NO_WORSE]


@pytest.mark.parametrize("better", ["high", "low"])
def test_a_gate_never_says_the_opposite(better):
    opposite, both = {BETTER: {WORSE}, NO_WORSE: {WORSE}, WORSE: {BETTER, NO_WORSE}, NOT_RESOLVED: set()}, set()
    for value, error in product(np.linspace(-3, 3, 61), (0.05, 0.1, 0.15, 0.2, 0.5, 1.0)):
        one = difference(value, error, better=better)
        gain = (one if better == "high" else one.reversed()).interval
        for others in (0, 1, 5):  # the more differences, the wider the interval of the verdict, never that of the gate
            verdict = verdicts([one, *[difference(0, 1)] * others])[0]
            answer = verdict_of(gain, margin=MARGIN)
            assert answer not in opposite[verdict.word], (value, error, others)
            assert verdict.word not in (BETTER, NO_WORSE) or answer == verdict.word or answer == BETTER
            both.add((verdict.word, answer))
    assert {(BETTER, BETTER), (NO_WORSE, NO_WORSE), (WORSE, WORSE), (NOT_RESOLVED, NO_WORSE)} <= both


@pytest.mark.parametrize("truth", [(0,) * 6, (0, 0, 0, -0.5, -0.5, -0.5), (4, 4, 0, 0, -4, -0.5)])
def test_one_wrong_word_in_a_table_is_rarer_than_one_in_twenty(truth):
    rng, wrong, runs = np.random.default_rng(0), 0, 1500
    for _ in range(runs):
        errors = 0.4 * np.sqrt(rng.chisquare(FREEDOM, len(truth)) / FREEDOM)
        found = verdicts([difference(v, e) for v, e in zip(rng.normal(truth, 0.4), errors, strict=True)])
        false = {BETTER: lambda t: t <= 0, NO_WORSE: lambda t: t <= -0.5, WORSE: lambda t: t >= 0}
        wrong += any(v.word in false and false[v.word](t) for v, t in zip(found, truth, strict=True))
    assert wrong / runs <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / runs)


def test_all_pairs_are_the_pairs_compared_alone():
    models = [
        records({"clean": cell(share(e, count=60)), "pgd5": cell(share(2 * e, count=60))}, model=f"m{e}")
        for e in (0.1, 0.2, 0.3)
    ]
    found = compare_all(models)
    assert set(found) == {(a, b) for a in range(3) for b in range(3) if a != b}
    alone = compare(models[2], models[0])
    for name, each in found[2, 0].differences.items():
        assert each.interval == pytest.approx(alone.differences[name].interval)
        assert found[0, 2].differences[name].interval.low == pytest.approx(-each.interval.high)
    assert (found[2, 0].first, found[0, 2].first) == ("m0.3", "m0.1")
