"""The gate: did the new version get less robust than the one in production? Judged from records alone.

``paired_scores`` holds what a paired test needs of one record set, ``baseline`` the same as a small file,
``compatibility`` checks what must agree before two record sets are compared, ``rules`` parses the rules, ``scores``
finds the score that each means, ``verdicts`` decides, ``output`` writes the verdicts as text.
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
