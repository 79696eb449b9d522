"""A rule means its full score on every data set where it applies, or the gate refuses: it never passes unanswered."""

import numpy as np
import pytest

from holdfast.errors import HoldfastError
from holdfast.gate.paired_scores import paired_scores_of
from holdfast.gate.rules import Rules, parse_rule
from holdfast.gate.verdicts import all_passed, decide
from tests.gate.test_verdicts import KNOWN, benchmark
from tests.records.making_records import cell, records

FOG = [f"fog/{severity}" for severity in range(1, 6)]


def two_sets(*, second=None):
    """Records of two data sets, the second of some cells only."""
    one, two = benchmark(data="a", data_fingerprint="a"), benchmark(data="b", data_fingerprint="b")
    return [side for held in (one, two if second is None else two.only(second)) for side in paired_scores_of(held)]


def judged(new, old, *rules, **settings):
    return decide(new, old, Rules(tuple(map(parse_rule, rules)), **settings))


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("C no worse", "'b' the new model lacks gaussian_noise/1"),
        ("mCA >= 10", "'b' the new model lacks gaussian_noise/1"),
        ("retention no worse", "'b' the new model lacks gaussian_noise/1"),
        ("snow no worse", "'b' the new model lacks snow/1, snow/2"),
        ("snow/5 no worse", "'b' the new model lacks snow/5"),
        ("mean_corruption_accuracy better", "'b' the new model lacks gaussian_noise/1"),
    ],
)
def test_a_rule_that_one_of_the_data_sets_cannot_answer_is_refused(rule, said):
    with pytest.raises(HoldfastError, match=said):
        judged(two_sets(second=["clean", *FOG]), two_sets(), rule)


def test_a_rule_that_the_baseline_cannot_answer_on_one_data_set_is_refused():
    with pytest.raises(HoldfastError, match=r"'b' the baseline lacks snow/1"):
        judged(two_sets(), two_sets(second=["clean", *FOG]), "snow no worse")


def test_a_rule_is_asked_only_of_data_that_have_its_score():
    held = two_sets(second=["clean"])
    answers = judged(held, held, "C no worse", "clean no worse")
    assert [(answer.data, answer.rule.name) for answer in answers] == [("a", "C"), ("a", "clean"), ("b", "clean")]
    assert all_passed(answers)


@pytest.mark.parametrize("name", ["C", "mCA", "mean_corruption_accuracy", "retention"])
def test_a_rule_never_means_the_partial_score(name):
    new = old = paired_scores_of(benchmark().only(["clean", *FOG]))
    with pytest.raises(HoldfastError, match=r"some of its cells are missing .*gaussian_noise/1.*_partial'"):
        judged(new, old, f"{name} no worse")
    assert all_passed(judged(new, old, "mean_corruption_accuracy_partial no worse"))
    assert all_passed(judged(new, old, "fog no worse"))


def test_a_kind_means_its_five_severities():
    held = paired_scores_of(benchmark().only(["clean", "fog/1", "fog/2", "fog/3"]))
    with pytest.raises(HoldfastError, match=r"fog/4, fog/5.*'accuracy/fog_partial'"):
        judged(held, held, "fog no worse")
    assert all_passed(judged(held, held, "accuracy/fog_partial no worse", "fog/3 no worse"))


@pytest.mark.parametrize("rules", [(), ("mean_corruption_accuracy_partial no worse",)])
def test_a_partial_score_is_of_the_cells_of_the_baseline(rules):
    """A baseline over fog and snow is not compared over fog alone."""
    whole = benchmark()
    snow = [f"snow/{severity}" for severity in range(1, 6)]
    with pytest.raises(HoldfastError, match="snow/1"):
        judged(
            paired_scores_of(whole.only(["clean", *FOG])), paired_scores_of(whole.only(["clean", *FOG, *snow])), *rules
        )


def test_a_mean_over_conditions_is_of_the_conditions_of_the_baseline():
    right = np.arange(100) >= 10
    cells = {name: cell(right, family="condition", kind=name) for name in ("fog", "night")}
    old = records({"clean": cell(right), **cells}, **KNOWN)
    with pytest.raises(HoldfastError, match="the new model lacks night"):
        judged(paired_scores_of(old.only(["clean", "fog"])), paired_scores_of(old), "conditions no worse")


def test_cells_that_are_half_measured_are_named():
    from dataclasses import replace

    old = benchmark()
    new = replace(old.only([name for name in old.cells if name != "fog/1"]), incomplete={"fog/1": (1, 3)})
    with pytest.raises(HoldfastError, match="the new model lacks fog/1"):
        judged(paired_scores_of(new), paired_scores_of(old), "C no worse")
    both = paired_scores_of(replace(old.only(["clean"]), incomplete={"fog/1": (1, 3)}))
    with pytest.raises(HoldfastError, match="fog/1"):
        judged([*both, *two_sets()], [*both, *two_sets()], "fog/1 no worse")


# ------------------------------------------------------------------ unresolved: pass


@pytest.mark.parametrize("rule", ["clean no worse", "clean better"])
def test_what_is_surely_worse_never_passes_as_unresolved(rule):
    """Forty images resolve nothing, but an interval wholly below the margin is no reason to pass either."""
    from tests.gate.test_verdicts import one_cell

    old, new = one_cell(np.arange(40) >= 2), one_cell(np.arange(40) >= 30)
    (answer,) = judged(paired_scores_of(new), paired_scores_of(old), rule, unresolved="pass")
    assert answer.interval.high < -0.5
    assert not answer.passed
    assert "too few images: 40" in answer.reason
    assert "below" in answer.reason
    (same,) = judged(paired_scores_of(old), paired_scores_of(old), "clean no worse", unresolved="pass")
    assert same.passed


def test_an_undefined_score_never_passes_as_unresolved():
    wrong = benchmark()
    nothing = records({**wrong.cells, "clean": cell([False] * 100)}, **KNOWN)
    (answer,) = judged(paired_scores_of(nothing), paired_scores_of(wrong), "retention no worse", unresolved="pass")
    assert np.isnan(answer.new)
    assert not answer.passed
    assert "undefined" in answer.reason


# ------------------------------------------------------------------ retention


def test_retention_is_shown_and_not_judged_unless_a_rule_asks():
    from holdfast.gate.output import junit, markdown, terminal

    old = records({**benchmark(0.2, count=1000).cells, "clean": cell(np.arange(1000) >= 100)}, **KNOWN)  # 90 and 80 %
    new = records({**benchmark(0.19, count=1000).cells, "clean": cell([True] * 1000)}, **KNOWN)  # both rise
    answers = judged(paired_scores_of(new), paired_scores_of(old))
    assert [(answer.rule.name, answer.verdict) for answer in answers] == [
        ("clean", "better"),
        ("mean_corruption_accuracy", "better"),
        ("retention", "shown"),
    ]
    assert answers[2].interval.high < -0.5
    assert all_passed(answers)
    for text in (terminal(answers), markdown(answers)):
        assert "PASS: all 2 rules passed" in text
        assert "81.00" in text
    assert 'tests="3" failures="0"' in junit(answers)
    assert 'skipped="1"' in junit(answers)
    assert not all_passed(judged(paired_scores_of(new), paired_scores_of(old), "retention no worse"))
