"""Robustness gate: compares a candidate model with the baseline in production, from their records.

``paired_scores`` holds the inputs of a paired test from one record set, ``baseline`` stores them as a small file,
``compatibility`` checks that two record sets can be compared, ``rules`` parses the rules, ``scores``
finds the score of each rule, ``verdicts`` decides, ``output`` formats the verdicts.
``decide_in_rounds`` measures until all rules are decided, with the bounds of ``looks``; ``forecast`` says beforehand
which rules will stay open.
"""

from holdfast._deprecated import renamed
from holdfast.gate.baseline import read_baseline, save_baseline
from holdfast.gate.paired_scores import PairedScores, paired_scores_of
from holdfast.gate.rules import Rule, Rules, read_rules
from holdfast.gate.verdicts import RuleVerdict, all_passed, decide

__all__ = [
    "PairedScores",
    "Rule",
    "RuleVerdict",
    "Rules",
    "all_passed",
    "decide",
    "paired_scores_of",
    "read_baseline",
    "read_rules",
    "save_baseline",
]

__getattr__ = renamed(__name__)
