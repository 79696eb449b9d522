"""Differences between the rows of a study, with 95 % intervals over images and seeds.

A difference is the mean over the seeds that both rows have. Its variance is that of the choice of images (jackknife of
the mean over seeds) plus the variance between seeds divided by their number, with Satterthwaite's degrees of freedom.
Two or three seeds are too few to estimate a variance, so it is pooled over all rows of the study. This assumes that
rows vary about equally between seeds; similar rows vary less, and their intervals are then too wide.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.metrics.intervals import (
    Estimate,
    Interval,
    SeedVariance,
    interval_of,
    jackknife_estimate,
    with_pseudo_pairs,
    with_seed_variance,
)
from holdfast.metrics.score_intervals import CONSTANT
from holdfast.studies.columns import Column, image_values, replicates_of, run_score, shared_seeds
from holdfast.studies.measure_run import has_draws_only, set_estimate
from holdfast.studies.results import RunResult

UNDEFINED = Interval(math.nan, math.nan, math.nan, 0.95)
Runs = tuple[RunResult, ...]
Pair = tuple[RunResult, RunResult]


def difference(column: Column, results: Mapping[str, Sequence[RunResult]], row: str, against: str) -> Interval:
    """Difference of two rows over their common seeds; NaN if one has no such score.

    All rows of the study are needed: the variance between seeds is pooled over them.
    """
    seeds = seed_variance(column, results)
    return _difference(column, tuple(results[row]), tuple(results[against]), seeds)


def seed_variance(column: Column, results: Mapping[str, Sequence[RunResult]]) -> SeedVariance:
    """Between-seed variance of a difference of two rows, pooled over the rows of a study."""
    return _seed_variance(column, tuple(tuple(runs) for runs in results.values()))


def pooled_rows(results: Mapping[str, Sequence[RunResult]]) -> int:
    """Number of rows over which the between-seed variance is pooled; 0 if no two rows share two seeds."""
    seeds = [{run.seed: 0.0 for run in runs} for runs in results.values()]
    return sum(len(row) > 1 for row in seeds) if variance_of_differences(seeds).freedom else 0


def variance_of_differences(scores: Sequence[Mapping[int, float]]) -> SeedVariance:
    """Between-seed variance of a difference of two rows, from a score per row and seed.

    Two-way model: a score is the sum of a row effect, a seed effect common to all rows (which cancels in a difference)
    and a residual; the variance of a difference is twice the residual variance. For two rows this is the variance of
    their differences; for several it is the mean over all pairs, whatever the order of the rows.
    """
    rows = [row for row in scores if len(row) > 1 and all(map(math.isfinite, row.values()))]
    seeds = sorted({seed for row in rows for seed in row})
    observations = [(row, seed, value) for row, values in enumerate(rows) for seed, value in values.items()]
    if not observations:
        return SeedVariance(0.0, 0)
    values = np.array([value for *_, value in observations])
    design = np.zeros((len(observations), len(rows) + len(seeds)))
    for line, (row, seed, _) in enumerate(observations):
        design[line, [row, len(rows) + seeds.index(seed)]] = 1
    fit, _, rank, _ = np.linalg.lstsq(design, values - values.mean(), rcond=None)
    left, freedom = values - values.mean() - design @ fit, len(observations) - int(rank)
    return SeedVariance(2 * float(np.square(left).sum()) / freedom if freedom else 0.0, freedom)


@lru_cache(maxsize=1024)
def _seed_variance(column: Column, rows: tuple[Runs, ...]) -> SeedVariance:
    return variance_of_differences([{run.seed: run_score(column, run) for run in runs} for runs in rows])


@lru_cache(maxsize=1024)  # tables, verdicts and plots use the same ones
def _difference(column: Column, runs: Runs, against: Runs, seeds: SeedVariance) -> Interval:
    shared = shared_seeds(runs, against)
    if not shared:
        raise HoldfastError("two rows can be compared only if they share a seed, got none")
    first, second = ({run.seed: run for run in row} for row in (runs, against))
    pairs = [(first[seed], second[seed]) for seed in shared]
    value = float(np.mean([run_score(column, one) - run_score(column, other) for one, other in pairs]))
    if not math.isfinite(value):  # for example head diversity with a single head
        return UNDEFINED
    found = with_seed_variance(_over_images(column, pairs, value, seeds), seeds, count=len(pairs))
    return interval_of(found, scale="plain", images=0)


def _over_images(column: Column, pairs: Sequence[Pair], value: float, seeds: SeedVariance) -> Estimate:
    """Mean over seeds with its standard error over the choice of images; NaN if it cannot be estimated."""
    replicates = [replicates_of(column, run) for pair in pairs for run in pair]
    drawn = {has_draws_only(run) for pair in pairs for run in pair}
    if (
        len(drawn) > 1 or len({len(each) for each in replicates}) > 1
    ):  # bootstrap draws cannot be paired with replicates
        return Estimate(value, math.nan, 0)
    apart = np.mean([one - other for one, other in zip(replicates[::2], replicates[1::2], strict=True)], axis=0)
    run = pairs[0][0]
    read = [image_values(column, run) for pair in pairs for run in pair]
    if not read[0]:  # a score of a whole set
        return set_estimate(column.shows, apart, run)
    estimate = jackknife_estimate(apart)
    binary = all(len(values) == 1 and np.isin(values[0], (0.0, 1.0)).all() for values in read)
    constant = np.ptp(apart) < CONSTANT
    if column.in_percent and (binary or constant):  # also if no prediction differs at all
        return with_pseudo_pairs(estimate, images=len(read[0][0]), whole=100)
    if constant and value and not seeds.freedom:  # one value for all images: only seeds carry an error
        return Estimate(value, math.nan, 0)
    return estimate
