"""Does a gain on ImageNet-C carry over to corruptions that are unlike those of ImageNet-C?

Training that resembles the corruptions of a benchmark scores on it without robustness behind it: AugMix gains 8.9
points on ImageNet-C and 5.3 on ImageNet-C-bar (Mintun et al. 2021). With both measured on the same images, the paired
intervals of two models' differences tell which it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.metrics.intervals import Interval
from holdfast.metrics.replicates import Replicates
from holdfast.metrics.score_intervals import interval_of_difference
from holdfast.metrics.scoring.base import ScoreDefinition

CARRIES_OVER, SPECIFIC, NOT_RESOLVED = "carries over", "specific to ImageNet-C", "not resolved"
ON_C, ON_C_BAR = "mean_corruption_accuracy", "mean_c_bar_accuracy"


def carry_over_verdict(on_c_bar: Interval, apart: Interval) -> str:
    """Whether a gain on C carries over, by the 95 % intervals of the gain on C-bar and of what C gains beyond it.

    ``carries over`` where the gain on C-bar is above 0; ``specific to ImageNet-C`` only where it is not, and the gain
    on C is larger beyond what the choice of images explains; else these images cannot tell.
    """
    if on_c_bar.low > 0:
        return CARRIES_OVER
    return SPECIFIC if apart.low > 0 else NOT_RESOLVED


@dataclass(frozen=True)
class CarryOver:
    """How much better one model is than another on C and on C-bar, in points, on the same images.

    Attributes:
        better: the model that is better on C.
        other: the one that it is compared with.
        on_c: the gain on C.
        on_c_bar: the gain on C-bar.
        apart: the gain on C minus the gain on C-bar.
    """

    better: str
    other: str
    on_c: Interval
    on_c_bar: Interval
    apart: Interval

    @property
    def verdict(self) -> str:
        """``carries over``, ``specific to ImageNet-C`` or ``not resolved``."""
        return carry_over_verdict(self.on_c_bar, self.apart)

    def __str__(self) -> str:
        gain = f"the gain of {self.better} over {self.other} on C ({_points(self.on_c)} points)"
        bar, apart = _points(self.on_c_bar), _points(self.apart)
        if self.verdict == CARRIES_OVER:
            return f"{gain} {CARRIES_OVER} to C-bar: {bar}"
        if self.verdict == SPECIFIC:
            return f"{gain} is {SPECIFIC}: {bar} on C-bar, a difference of {apart}"
        return f"whether {gain} carries over to C-bar is {NOT_RESOLVED}: {bar} on C-bar, a difference of {apart}"


def carry_over(
    formulas: Mapping[str, ScoreDefinition],
    models: Sequence[Replicates],
    *,
    names: Sequence[str],
) -> CarryOver | None:
    """The gain on C of the model that is better there, and what it gains on C-bar.

    None where one of the two scores is not there in full, or where neither model is better on C.
    """
    if ON_C not in formulas or ON_C_BAR not in formulas:
        return None
    c, c_bar = formulas[ON_C], formulas[ON_C_BAR]
    apart = replace(
        c,
        compute=lambda means: c.compute(means) - c_bar.compute(means),
        cells=(*c.cells, *c_bar.cells),
        reads=(*c.reads, *c_bar.reads),
        answers=None,
    )
    found = [interval_of_difference(score, models) for score in (c, c_bar, apart)]
    if found[0].value > 0:
        return CarryOver(names[0], names[1], *found)
    if found[0].value < 0:
        return CarryOver(names[1], names[0], *map(_turned, found))
    return None


def _turned(difference: Interval) -> Interval:
    return Interval(-difference.value, -difference.high, -difference.low, difference.level)


def _points(gain: Interval) -> str:
    return gain.text("+.2f")
