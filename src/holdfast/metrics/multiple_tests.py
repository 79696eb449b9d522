"""Verdicts on several paired differences at once, corrected for their number by Holm's procedure (1979).

Of m differences the most significant one is tested at level α/m, the next at α/(m − 1) and so on, until one cannot be
told from 0; that one and all others are tested at the level of this step. The interval at the level of a difference
gives its verdict: *better* if it lies above 0, *no worse* if it lies above minus the margin, *worse* if it lies below 0
and the 95 % interval reaches beyond the margin. A gate decides by the 95 % interval, and so never says the opposite.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from holdfast.metrics.comparison import Difference
from holdfast.metrics.intervals import Interval

BETTER, NO_WORSE, WORSE, NOT_RESOLVED = "better", "no worse", "worse", "not resolved"
MARGIN = 0.5  # percentage points that a model may lose and be no worse, also by a gate's default rules
IMAGES = 50  # with fewer images an interval is wider than any useful margin; a gate does not decide then
ALPHA = 0.05


@dataclass(frozen=True)
class Verdict:
    """The verdict on one of several differences.

    Attributes:
        difference: the difference, with its own 95 % interval.
        interval: its interval at the level of Holm's procedure.
        word: ``better``, ``no worse``, ``worse`` or ``not resolved``, for the first model.
    """

    difference: Difference
    interval: Interval
    word: str


def holm_levels(p_values: ArrayLike, *, alpha: float = ALPHA) -> list[float]:
    """Significance level of every hypothesis in Holm's step-down procedure; it is rejected if p is at most that."""
    given = np.asarray(p_values, dtype=np.float64)
    p = np.where(np.isnan(given), 1.0, given)  # an unknown p value is never significant, but counts
    levels, left = np.empty(len(p)), len(p)
    for place in np.argsort(p, kind="stable"):
        levels[place] = alpha / left
        left -= bool(p[place] <= levels[place])
    return levels.tolist()


def verdicts(differences: Sequence[Difference], *, margin: float = MARGIN, alpha: float = ALPHA) -> list[Verdict]:
    """The verdict on every difference; together they are wrong with a probability of at most about ``alpha``."""
    levels = holm_levels([each.p_value for each in differences], alpha=alpha)
    return [_verdict(each, level, margin=margin) for each, level in zip(differences, levels, strict=True)]


def _verdict(difference: Difference, level: float, *, margin: float) -> Verdict:
    interval, own = difference.at_level(1 - level), difference.interval
    low, high = (interval.low, interval.high) if difference.better == "high" else (-interval.high, -interval.low)
    lowest = own.low if difference.better == "high" else -own.high
    allowed = margin if difference.unit.startswith("%") else 0.0
    worse = high < 0 and lowest < -allowed
    word = BETTER if low > 0 else NO_WORSE if low >= -allowed else WORSE if worse else NOT_RESOLVED
    return Verdict(difference, interval, word)
