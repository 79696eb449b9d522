"""Scores of whole sets (average precision, mIoU) in a study: each with its draws, so that differences have intervals.

Such a score is no mean over images. A run keeps, for every cell, the score itself and the scores of images drawn with
replacement; the draws are the same for all runs of a study. So the difference of two runs, draw by draw, is a paired
bootstrap, and any mean over cells or seeds follows.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import HoldfastError
from holdfast.metrics.intervals import Interval, interval_of
from holdfast.studies.results import RunResult

RESAMPLES, SEED = 200, 0
SEEDS_PER_DRAW = 20  # choices of seeds for every draw of images: they cost nothing
CORRUPTED, KEPT = "_c", "_kept"  # behind a quantity's name: its mean under corruption, and what that is of clean


def set_scores(result: RunResult) -> dict[str, NDArray[np.float64]]:
    """Every score of a run in percent with its draws, (1 + draws,): the score itself comes first."""
    found: dict[str, NDArray[np.float64]] = {}
    for quantity, values in result.draws.items():
        found |= _of_quantity(result, quantity, 100 * np.asarray(values, dtype=np.float64))
    return found


def _of_quantity(result: RunResult, name: str, values: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    rows = dict(zip(result.cells, values, strict=True))
    scores = {}
    for cell, row in rows.items():
        if cell.family == "clean":
            scores[name] = row
        elif cell.family == "condition":
            scores[f"{name}_{cell.name}"] = row
    kinds = dict.fromkeys(cell.kind for cell in rows if cell.family == "corruption")
    if kinds:
        of_kind = [np.mean([row for cell, row in rows.items() if cell.kind == kind], axis=0) for kind in kinds]
        scores[name + CORRUPTED] = np.mean(of_kind, axis=0)
    if kinds and name in scores:
        with np.errstate(divide="ignore", invalid="ignore"):
            scores[name + KEPT] = 100 * scores[name + CORRUPTED] / scores[name]
    return scores


def set_difference(name: str, runs: Sequence[RunResult], against: Sequence[RunResult]) -> Interval:
    """How far a row is above another, over images × seeds; both hold the same seeds in the same order."""
    pairs = [(set_scores(one)[name], set_scores(other)[name]) for one, other in zip(runs, against, strict=True)]
    if len({len(side) for pair in pairs for side in pair}) > 1:
        raise HoldfastError(f"runs must hold equally many draws of {name} to be compared; measure them again")
    with np.errstate(invalid="ignore"):  # what is kept of nothing is no number
        apart = np.stack([one - other for one, other in pairs])  # seeds × (1 + draws)
    drawn, rng = np.repeat(apart[:, 1:].T, SEEDS_PER_DRAW, axis=0), np.random.default_rng(SEED)
    chosen = rng.integers(len(pairs), size=(len(drawn), len(pairs)))
    return interval_of(float(apart[:, 0].mean()), np.take_along_axis(drawn, chosen, axis=1).mean(axis=1))
