"""Intervals of a task's scores and of their differences, from jackknife replicates of the scores' inputs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.metrics.intervals import FEW_IMAGES, Interval, difference_interval, highest_share, score_interval
from holdfast.metrics.jackknife import Groups
from holdfast.metrics.replicates import Replicates
from holdfast.metrics.scoring.base import ScoreDefinition
from holdfast.metrics.scoring.registry import scoring_of
from holdfast.records.records import CellRecord

CONSTANT = 1e-9  # replicates that differ by less are equal up to rounding


def interval_of_score(formula: ScoreDefinition, replicates: Replicates) -> Interval:
    """A score and its confidence interval; NaN bounds without replicates."""
    values = replicates.score(formula)
    value, scale = float(values[0]), formula.interval_scale
    if len(values) == 1:
        return Interval(value, float("nan"), float("nan"), 0.95)
    groups = replicates.groups_of(formula)
    if scale == "proportion" and not 0 <= value <= 100 + 1e-9:
        scale = "plain"  # a custom score in percent that is not a proportion
    at_zero = _highest_at_zero(formula, replicates, groups) if scale == "ratio" and value == 0 else float("nan")
    images = _independent(formula, replicates, groups)
    return score_interval(values, scale=scale, images=images, whole=100, highest_at_zero=at_zero)


def _independent(formula: ScoreDefinition, replicates: Replicates, groups: Groups) -> int:
    """Number of independent observations of a score, which may be of some images only."""
    share = 1.0 if formula.among is None else float(replicates[formula.among][0])
    return max(1, round(groups.independent * share)) if np.isfinite(share) else groups.independent


def _highest_at_zero(formula: ScoreDefinition, replicates: Replicates, groups: Groups) -> float:
    """Upper bound of a ratio whose numerator is 0: the ratio at the numerator's own upper bound."""
    share, means = highest_share(groups), {key: values[0] for key, values in replicates.items()}
    return float(
        formula.compute({key: np.clip(mean, share, None if mean > 1 else 1 - share) for key, mean in means.items()})
    )


def interval_of_difference(
    formula: ScoreDefinition, models: Sequence[Replicates], *, same_model: bool = False
) -> Interval:
    """The first model's score minus the second's with its interval; exactly 0 for identical records of one model."""
    first, second = (model.score(formula) for model in models)
    value, percent = float(first[0]) - float(second[0]), formula.unit.startswith("%")
    if len(first) != len(second) or len(first) == 1:
        return Interval(value, float("nan"), float("nan"), 0.95)
    groups, apart = models[0].groups_of(formula), first - second
    constant = np.ptp(apart[1:]) < CONSTANT
    if same_model and value == 0 and constant:
        return Interval(0.0, 0.0, 0.0, 0.95)
    binary = percent and all(model.is_binary(formula.answers) for model in models)
    whole = 100.0 if percent else 1.0
    if percent and constant:  # no prediction differs; a further image could change the mean of one cell by 1/cells
        binary, whole = True, 100 / max(1, len(formula.cells))
    images = _independent(formula, models[0], groups)
    return difference_interval(apart, images=images, binary=binary, whole=whole)


def is_same_model(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two headers have the same model fingerprint."""
    known = first.get("model_fingerprint")
    return known is not None and known == second.get("model_fingerprint")


def interval_note(cells: Mapping[str, CellRecord], ids: NDArray[np.str_], groups: Groups, *, task: str) -> str:
    """A line on the intervals' limits: few images, blocks of frames, the task's own note; mostly empty."""
    few = f"few images: {len(ids)}" if len(ids) < FEW_IMAGES else ""
    blocks = f"intervals leave out {groups.what} at a time" if groups.what else ""
    return "; ".join(note for note in (few, blocks, scoring_of(task).interval_note(cells)) if note)
