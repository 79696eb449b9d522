"""Scores of whole sets (average precision, mIoU) in a study: each with what its interval is made of.

Such a score is no mean over images. A run keeps, for every cell, the score itself and its jackknife replicates: the
scores without each group of images. The groups are the same for all runs of a study, so differences are paired and any
mean over cells or seeds follows. Results of before hold scores of images drawn with replacement instead; of these the
standard deviation is used.
"""

import numpy as np
from numpy.typing import NDArray

from holdfast.metrics.groups import GROUPINGS
from holdfast.metrics.intervals import Estimate, jackknife_estimate
from holdfast.studies.results import RunResult

CORRUPTED, KEPT = "_c", "_kept"  # behind a quantity's name: its mean under corruption, and what that is of clean
FILM = "camvid:"  # data whose frames were drawn in blocks
BLOCK = max(grouping.block for grouping in GROUPINGS)


def set_scores(result: RunResult) -> dict[str, NDArray[np.float64]]:
    """Every score of a run in percent with its replicates, (1 + groups,), or draws: the score itself comes first."""
    found: dict[str, NDArray[np.float64]] = {}
    for quantity, values in result.draws.items():
        found |= _of_quantity(result, quantity, 100 * np.asarray(values, dtype=np.float64))
    return found


def _of_quantity(result: RunResult, name: str, values: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    rows = {cell: row[: _kept(result, cell.name)] for cell, row in zip(result.cells, values, strict=True)}
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
        clean = np.where(scores[name] > 0, scores[name], np.nan)  # what is kept of nothing is no number
        scores[name + KEPT] = 100 * scores[name + CORRUPTED] / clean
    return scores


def _kept(result: RunResult, cell: str) -> int | None:
    """How many values a cell has: other data have other groups, and the shorter rows are filled up."""
    told = result.header.get("replicates")
    return None if told is None else 1 + int(told["shifts"].get(cell, told["groups"]))


def has_draws_only(result: RunResult) -> bool:
    """Whether a run measured sets before there were replicates."""
    return bool(result.draws) and "replicates" not in result.header


def set_estimate(name: str, apart: NDArray[np.float64], run: RunResult) -> Estimate:
    """A difference of sets and its error over the images, from (1 + groups) replicates or (1 + draws).

    Of draws the error is their standard deviation. Its degrees of freedom are those of the images, or of the blocks of
    frames, that were drawn; there may be more draws than that.
    """
    if not has_draws_only(run):
        return jackknife_estimate(apart)
    images = int(run.header.get("measured_images", 0))
    shift = next((size for other, size in run.header.get("shifts", {}).items() if name.endswith(f"_{other}")), images)
    independent = shift // BLOCK if str(run.header.get("test", "")).startswith(FILM) else shift
    drawn = apart[1:]
    error = float(np.std(drawn, ddof=1)) if len(drawn) > 1 else float("nan")
    return Estimate(float(apart[0]), error, max(0, min(independent, len(drawn)) - 1))
