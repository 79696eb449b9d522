"""Confidence intervals of scores and differences over images and seeds, from jackknife replicates.

The standard error comes from the replicates of `holdfast.metrics.jackknife`; the shape of the interval depends
on the score. Proportions get Wilson's interval (1927) with an effective number of images, ratios a t interval on the
logarithm, differences a t interval, with the pseudo-pairs of Bonett and Price (2012) where an image scores 0 or 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, isfinite, nan, sqrt
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from holdfast.errors import HoldfastError
from holdfast.metrics.jackknife import Groups, replicated_means

Scale = Literal["proportion", "ratio", "plain"]
Statistic = Callable[[NDArray[np.float64]], float]

FEW_IMAGES = 30  # below, tables say "few images", because coverage was verified from 30 images on
EXACT = 1e-12  # closer to 0 or 1 than this, a proportion counts as exactly 0 or 1


@dataclass(frozen=True)
class Interval:
    """A score, or a difference of scores, and the bounds of its interval."""

    value: float
    low: float
    high: float
    level: float

    @property
    def excludes_zero(self) -> bool:
        """For a difference: whether one model is better beyond the sampling of images."""
        return self.low > 0 or self.high < 0

    def bounds(self, form: str) -> str:
        """The bounds in words, each in a form such as ``+.1f``: ``+0.1 to +4.6``."""
        return f"{self.low:{form}} to {self.high:{form}}"

    def text(self, form: str) -> str:
        """Value and bounds: ``+2.3 (+0.1 to +4.6)``."""
        return f"{self.value:{form}} ({self.bounds(form)})"


@dataclass(frozen=True)
class Estimate:
    """A value, its standard error and the degrees of freedom of that error."""

    value: float
    error: float
    freedom: float


@dataclass(frozen=True)
class SeedVariance:
    """Variance of a score between seeds and its degrees of freedom; 0 degrees if no row has two seeds."""

    variance: float
    freedom: int


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over seeds; NaN deviation for a single seed."""

    mean: float
    std: float
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.std:.2g} (n={self.count})"


def jackknife_estimate(replicates: ArrayLike) -> Estimate:
    """Estimate a score and its standard error: the first entry is the score of all images, the others replicates.

    SE² = (G − 1)/G · Σ(θ₍g₎ − mean)². The error is NaN if a replicate is undefined or there is only one group.
    """
    array = np.asarray(replicates, dtype=np.float64)
    value, left = float(array[0]), array[1:]
    count = len(left)
    if count < 2 or not np.isfinite(left).all():
        return Estimate(value, nan, max(count - 1, 0))
    # (G − 1)/G instead of 1/(G(G − 1)): replicates share all but 1/G of the images, so they vary (G − 1)² times less
    # than G independent estimates would (Tukey 1958; Kott 2001 for groups)
    return Estimate(value, sqrt((count - 1) / count * float(np.square(left - left.mean()).sum())), count - 1)


def jackknife_interval(
    values: ArrayLike,
    *,
    groups: Groups | None = None,
    statistic: Statistic | None = None,
    scale: Scale = "plain",
    level: float = 0.95,
) -> Interval:
    """The confidence interval of a score over the sampling of images.

    Args:
        values: one row per image, (N,) or (N, cells): its correctness, its NLL, its error in each cell …
        groups: jackknife groups of images; by default every image is its own group.
        statistic: the score as a function of the mean over the images, (cells,); by default their mean.
        scale: ``proportion`` for scores from 0 to 1, ``ratio`` for quotients, ``plain`` for everything else.
        level: nominal coverage.
    """
    rows = _rows(values, "values")
    groups = groups or Groups(np.arange(len(rows)), len(rows), len(rows))
    score = statistic or _plain_mean
    replicates = [score(means) for means in replicated_means(rows, groups)]
    return score_interval(replicates, scale=scale, images=groups.independent, level=level)


def paired_difference(
    first: ArrayLike, second: ArrayLike, *, groups: Groups | None = None, statistic: Statistic | None = None
) -> Interval:
    """The 95 % interval of ``first`` minus ``second``, two models on the same images in the same order.

    Both leave out the same images, so what is hard for both cancels out. Arguments as in `jackknife_interval`.
    """
    one, other, score = _rows(first, "first"), _rows(second, "second"), statistic or _plain_mean
    if one.shape != other.shape:
        raise HoldfastError(f"first and second must have the same shape, got {one.shape} and {other.shape}")
    groups = groups or Groups(np.arange(len(one)), len(one), len(one))
    scores = [np.array([score(means) for means in replicated_means(rows, groups)]) for rows in (one, other)]
    binary = one.shape[1] == 1 and statistic is None and _is_binary(one) and _is_binary(other)
    return difference_interval(scores[0] - scores[1], images=groups.independent, binary=binary)


def score_interval(
    replicates: ArrayLike,
    *,
    scale: Scale,
    images: int,
    whole: float = 1.0,
    highest_at_zero: float = nan,
    level: float = 0.95,
) -> Interval:
    """The interval of one score from its replicates, whose first entry is its value.

    Args:
        replicates: (1 + groups,).
        scale: ``proportion``, ``ratio`` or ``plain``.
        images: number of independent observations, which determines the interval of a proportion of exactly 0 or 1.
        whole: unit of a proportion: 1, or 100 for percent.
        highest_at_zero: upper bound of a ratio whose numerator is 0, where the logarithm is undefined.
        level: nominal coverage.
    """
    array = np.asarray(replicates, dtype=np.float64)
    if scale == "ratio" and (array > 0).all():
        logs = jackknife_estimate(np.log(array))
        half = t_quantile(logs.freedom, level) * logs.error
        if not isfinite(half):
            return Interval(float(array[0]), nan, nan, level)
        # clamped, because exp overflows above 709; the bound is meaningless there, but must not raise
        return Interval(float(array[0]), float(array[0]) * exp(-half), float(array[0]) * exp(min(half, 700.0)), level)
    estimate = jackknife_estimate(array)
    if scale == "ratio" and estimate.value == 0:
        return Interval(0.0, 0.0, highest_at_zero, level)
    bounded = interval_of(estimate, scale=scale, images=images, whole=whole, level=level)
    return Interval(bounded.value, max(bounded.low, 0.0), bounded.high, level) if scale == "ratio" else bounded


def difference_interval(
    replicates: ArrayLike, *, images: int, binary: bool = False, whole: float = 1.0, level: float = 0.95
) -> Interval:
    """The t interval of a paired difference, from the differences of the replicates.

    ``binary`` means that every image scores 0 or 1 for either model: the standard error then includes two pseudo-pairs,
    one in favour of each model (Bonett and Price 2012), which keeps the coverage if few predictions differ.
    """
    estimate = jackknife_estimate(replicates)
    if binary:
        estimate = with_pseudo_pairs(estimate, images=images, whole=whole)
    return interval_of(estimate, scale="plain", images=images, whole=whole, level=level)


def with_pseudo_pairs(estimate: Estimate, *, images: int, whole: float = 1.0) -> Estimate:
    """Recompute the standard error with one additional win and one loss; the value is unchanged."""
    mean, error = estimate.value / whole, estimate.error / whole
    if not isfinite(error):
        return estimate
    square = (images - 1) * error**2 + mean**2  # mean squared difference per image, since SE² = var / (n − 1)
    square, mean = (images * square + 2) / (images + 2), images * mean / (images + 2)
    return Estimate(estimate.value, whole * sqrt((square - mean**2) / (images + 2)), estimate.freedom)


def interval_of(estimate: Estimate, *, scale: Scale, images: int, whole: float = 1.0, level: float = 0.95) -> Interval:
    """The interval of an estimate; NaN bounds if its error is unknown, [0, whole] for a proportion of one group."""
    quantile = t_quantile(estimate.freedom, level)
    return interval_with(estimate, quantile=quantile, scale=scale, images=images, whole=whole, level=level)


def interval_with(
    estimate: Estimate, *, quantile: float, scale: Scale, images: int, whole: float = 1.0, level: float = 0.95
) -> Interval:
    """The interval of an estimate whose bounds lie so many standard errors away; Wilson's for a proportion."""
    if scale == "proportion":
        low, high = _wilson(estimate.value / whole, estimate.error / whole, images=images, quantile=quantile)
        return Interval(estimate.value, whole * low, whole * high, level)
    half = quantile * estimate.error
    if not isfinite(half):
        return Interval(estimate.value, nan, nan, level)
    return Interval(estimate.value, estimate.value - half, estimate.value + half, level)


def _wilson(value: float, error: float, *, images: int, quantile: float) -> tuple[float, float]:
    """Wilson's interval with the effective number of images p(1 − p)/SE²; at p = 0 and 1 with all images."""
    if not isfinite(value):
        return nan, nan
    # at 0 and 1 the jackknife error is 0, so the effective number p(1 − p)/SE² is 0/0: use all images instead
    at_an_end = value <= EXACT or value >= 1 - EXACT
    if not isfinite(quantile):
        return 0.0, 1.0
    if not isfinite(error):
        return nan, nan
    if not at_an_end and error == 0:
        return value, value
    count = float(images) if at_an_end else value * (1 - value) / error**2
    squared = quantile**2 / count
    centre = (value + squared / 2) / (1 + squared)
    half = sqrt(max(0.0, squared * value * (1 - value) + squared**2 / 4)) / (1 + squared)
    return min(max(0.0, centre - half), value), max(min(1.0, centre + half), value)


def highest_share(groups: Groups, level: float = 0.95) -> float:
    """Upper bound of an observed proportion of 0."""
    return _wilson(0.0, 0.0, images=groups.independent, quantile=t_quantile(groups.count - 1, level))[1]


def t_quantile(freedom: float, level: float = 0.95) -> float:
    """Two-sided quantile of Student's t; infinite without a degree of freedom."""
    if not 0 < level < 1:
        raise HoldfastError(f"level must be between 0 and 1, got {level}")
    return float(stdtrit(freedom, (1 + level) / 2)) if freedom > 0 else inf


def with_seed_variance(images: Estimate, seeds: SeedVariance, *, count: int) -> Estimate:
    """Add the variance between ``count`` seeds to an estimate whose error covers the sampling of images only."""
    between, within = seeds.variance / count, images.error**2
    if not seeds.freedom or not between or not isfinite(within):
        return images
    # Welch–Satterthwaite: degrees of freedom of a sum of two independent variance estimates
    freedom = (between + within) ** 2 / (between**2 / seeds.freedom + within**2 / max(images.freedom, 1))
    return Estimate(images.value, sqrt(between + within), freedom)


def over_seeds(scores: ArrayLike) -> Spread:
    """Mean ± sample standard deviation of one score per seed."""
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim != 1 or not array.size or not np.isfinite(array).all():
        raise HoldfastError(f"scores must be one finite number per seed, got {array.tolist()}")
    std = float(array.std(ddof=1)) if len(array) > 1 else float("nan")
    return Spread(float(array.mean()), std, len(array))


def _plain_mean(means: NDArray[np.float64]) -> float:
    return float(means.mean())


def _is_binary(rows: NDArray[np.float64]) -> bool:
    return bool(np.isin(rows, (0.0, 1.0)).all())


def _rows(values: ArrayLike, name: str) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or not array.size:
        raise HoldfastError(f"{name} must be (images,) or (images, cells) and not empty, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise HoldfastError(f"{name} must be finite, got NaN or infinity in {(~np.isfinite(array)).sum()} places")
    return array
