"""Robustness gate: compares a candidate model with the baseline in production, from their records.

``paired_scores`` holds the inputs of a paired test from one record set, ``baseline`` stores them as a small file,
``compatibility`` checks that two record sets can be compared, ``rules`` parses the rules, ``scores``
finds the score of each rule, ``verdicts`` decides, ``output`` formats the verdicts. ``run_gate`` does it all in one
call, which the package itself takes: ``holdfast.gate(candidate, against)``. ``decide_in_rounds`` measures until all
rules are decided, with the bounds of ``looks``; ``forecast`` says beforehand which rules will stay open.
"""

import inspect
import sys
from types import ModuleType

from holdfast._deprecated import renamed
from holdfast.gate.baseline import read_baseline, save_baseline
from holdfast.gate.paired_scores import PairedScores, paired_scores_of
from holdfast.gate.rules import Rule, Rules, read_rules
from holdfast.gate.run_gate import GateResult, gate
from holdfast.gate.verdicts import RuleVerdict, all_passed, decide

__all__ = [
    "GateResult",
    "PairedScores",
    "Rule",
    "RuleVerdict",
    "Rules",
    "all_passed",
    "decide",
    "gate",
    "paired_scores_of",
    "read_baseline",
    "read_rules",
    "save_baseline",
]

__getattr__ = renamed(__name__)


class _Gate(ModuleType):
    """The package as a function like its siblings ``holdfast.evaluate`` and ``holdfast.report``."""

    __call__ = staticmethod(gate)
    __signature__ = inspect.signature(gate)  # inspect would leave out the first argument, taking it for self


sys.modules[__name__].__class__ = _Gate
