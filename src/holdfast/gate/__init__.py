"""The gate: did the new version get less robust than the one in production? Judged from records alone.

``sides`` is what a paired test needs of one record set, ``baseline`` the same as a small file, ``matching`` what must
agree before two sides are compared, ``rules`` what is asked, ``scores`` which score that is, ``verdicts`` the answers,
``output`` the answers as text.
"""

from holdfast.gate.baseline import read_baseline, save_baseline
from holdfast.gate.rules import Rule, Rules, read_rules
from holdfast.gate.sides import Side, sides_of
from holdfast.gate.verdicts import Judged, judge, passed

__all__ = [
    "Judged",
    "Rule",
    "Rules",
    "Side",
    "judge",
    "passed",
    "read_baseline",
    "read_rules",
    "save_baseline",
    "sides_of",
]
