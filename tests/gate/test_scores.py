"""Scores by the names that rules use: names, labels, cells and kinds, whole or in part."""

import pytest

from holdfast.errors import HoldfastError
from holdfast.gate.paired_scores import paired_scores_of
from holdfast.gate.rules import Rules, parse_rule
from holdfast.gate.scores import Scores, check_rules, default_rule, missing_headlines
from holdfast.gate.scores import tested_rules as rules_that_are_tested
from tests.records.making_records import cell, corrupted, flat, records, share


def scores_of(**cells):
    (side,) = paired_scores_of(records({"clean": cell(share(0.1, count=20)), **cells}))
    return side, Scores.of(side)


WHOLE = corrupted(flat(0.5), count=20)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("mean_corruption_accuracy", "mean_corruption_accuracy"),
        ("mCA", "mean_corruption_accuracy"),
        ("C", "mean_corruption_accuracy"),
        ("clean", "clean"),
        ("fog", "accuracy/fog"),
        ("mCE", "mce"),
    ],
)
def test_a_score_is_found_by_name_label_or_kind(name, found):
    _, scores = scores_of(**WHOLE)
    assert scores.find(name).name == found


def test_a_cell_is_a_score_of_its_own_and_nothing_else_is_found():
    _, scores = scores_of(**WHOLE)
    assert scores.find("fog/5").cells == ("fog/5",)
    assert scores.find("fgo") is None
    assert scores.find("C-bar") is None


def test_a_partial_score_is_never_found_by_the_name_of_the_whole():
    some = {name: held for name, held in WHOLE.items() if name != "fog/3"}
    side, scores = scores_of(**some)
    assert scores.find("mean_corruption_accuracy") is None
    assert scores.find("C") is None
    assert scores.part_of("mean_corruption_accuracy").missing == ("fog/3",)
    assert missing_headlines(side)["mean_corruption_accuracy"] == ("fog/3",)
    with pytest.raises(HoldfastError, match="the baseline lacks cells of it"):
        check_rules([side], Rules((parse_rule("mean_corruption_accuracy no worse"),)))


def test_an_unknown_score_is_answered_with_the_nearest():
    side, _ = scores_of(**WHOLE)
    with pytest.raises(HoldfastError, match=r"got 'mean_corruption_acuracy'; did you mean 'mean_corruption_accuracy'"):
        check_rules([side], Rules((parse_rule("mean_corruption_acuracy no worse"),)))


def test_without_rules_headlines_are_tested_and_ratios_only_shown():
    side, scores = scores_of(**WHOLE)
    named = [formula.name for _, formula in rules_that_are_tested(side, Rules())]
    assert {"clean", "mean_corruption_accuracy"} <= set(named)
    assert "retention" in scores.formulas
    assert "retention" not in named
    assert default_rule(scores.formulas["retention"]).what == "shown"
