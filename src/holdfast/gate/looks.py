"""``Looks``: when a gate that stops early looks at a rule, and how sure it must be at each look.

A gate ``--until decided`` measures rounds of images; after each, every cell of a rule has the next planned number of
images. Bounds follow from these plans alone (`holdfast.metrics.group_sequential`), so a resumed gate, or two of
the same seed, decide alike. The error is shared equally among the rules.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import nan

import numpy as np

from holdfast.metrics.group_sequential import ERROR, interval_at_look, planned_information, spending_bounds
from holdfast.metrics.intervals import Interval, Scale, jackknife_estimate, with_pseudo_pairs
from holdfast.metrics.replicates import Replicates
from holdfast.metrics.scoring.base import ScoreDefinition


@dataclass(frozen=True)
class Looks:
    """The planned looks at one data set.

    Attributes:
        images: number of images of the data.
        cells: names of the cells that share the images.
        depths: images per such cell after each round.
        rules: number of rules that share the error.
    """

    images: int
    cells: tuple[str, ...]
    depths: tuple[int, ...]
    rules: int = 1

    def at(self, used: Collection[str], counts: Mapping[str, int], unreadable: int = 0) -> "Look":
        """The look at a score.

        Args:
            used: cells that it is computed from.
            counts: number of measured images of every cell.
            unreadable: number of images that cannot be measured.
        """
        there = [counts.get(cell, 0) for cell in used]
        shared = [cell for cell in used if cell in self.cells]
        depths = np.asarray(self.depths)
        if shared:
            reached = min(counts.get(cell, 0) for cell in shared)
            images, passes = np.minimum(self.images, len(shared) * depths), len(shared) * depths
        else:  # the clean cell has every image that another cell has
            reached = min(there, default=0)
            depths = images = passes = np.unique(np.minimum(self.images, len(self.cells) * depths))
        number = int(np.searchsorted(depths, reached, side="right")) - 1
        bound = nan if number < 0 else _bounds(tuple(images), tuple(passes), ERROR / self.rules)[number]
        return Look(bound, sum(there), min(there, default=0) >= self.images - unreadable)


@dataclass(frozen=True)
class Look:
    """One look at a score.

    Attributes:
        bound: bound in standard errors; NaN before the first planned look.
        passes: number of images in all of its cells together.
        complete: whether all images are measured in all of its cells.
    """

    bound: float
    passes: int
    complete: bool


@lru_cache(maxsize=64)
def _bounds(images: tuple[int, ...], passes: tuple[int, ...], alpha: float) -> tuple[float, ...]:
    return tuple(spending_bounds(planned_information(images, passes), alpha=alpha).tolist())


def difference_at_look(formula: ScoreDefinition, models: Sequence[Replicates], look: Look) -> Interval:
    """The first model's score minus the second's, with an interval that may be looked at after every round.

    Equal answers of two models are no proof of equality, so the standard error includes one more win and one more loss
    of an image in one cell, as Bonett and Price 2012 do for proportions.
    """
    first, second = (model.score(formula) for model in models)
    value, percent = float(first[0]) - float(second[0]), formula.unit.startswith("%")
    if len(first) != len(second) or len(first) == 1 or np.isnan(look.bound):
        return Interval(value, nan, nan, 0.95)
    estimate, images = jackknife_estimate(first - second), models[0].groups_of(formula).independent
    if percent:  # each image counts in so many of the cells over which the score is a mean
        estimate = with_pseudo_pairs(estimate, images=images, whole=100 * min(1.0, images / max(1, look.passes)))
    return interval_at_look(estimate, look.bound, images=images)


def score_at_look(formula: ScoreDefinition, model: Replicates, look: Look) -> Interval:
    """A score, with an interval that may be looked at after every round."""
    values = model.score(formula)
    if len(values) == 1 or np.isnan(look.bound):
        return Interval(float(values[0]), nan, nan, 0.95)
    scale: Scale = "proportion" if formula.interval_scale == "proportion" and 0 <= values[0] <= 100 else "plain"
    images = model.groups_of(formula).independent
    return interval_at_look(jackknife_estimate(values), look.bound, scale=scale, images=images, whole=100)
