"""How sure a score is: bootstrap over the images, paired comparison of two models, spread over seeds.

Percentile bootstrap, Efron 1979. The images are what is resampled: all cells of an image stay together, because a model
that fails on an image under fog tends to fail on it under snow.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.errors import HoldfastError

Draw = Callable[[np.random.Generator], NDArray[np.int64]]  # how often every image is drawn
Statistic = Callable[[NDArray[np.float64]], float]

_CHUNK = 2**22  # image counts held at a time


@dataclass(frozen=True)
class Interval:
    """A score, or a difference of scores, and the bounds of its interval."""

    value: float
    low: float
    high: float
    level: float

    @property
    def excludes_zero(self) -> bool:
        """For a difference: whether one model is better beyond what the choice of images explains."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over seeds; of a single seed the deviation is NaN."""

    mean: float
    std: float
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.std:.2g} (n={self.count})"


def bootstrap_interval(
    values: ArrayLike,
    *,
    rng: np.random.Generator,
    statistic: Statistic | None = None,
    level: float = 0.95,
    resamples: int = 2000,
) -> Interval:
    """The interval of a score over the choice of images.

    Args:
        values: one row per image, (N,) or (N, cells): whether it was right, its NLL, its error in each cell …
        rng: where the resampling draws come from.
        statistic: the score as a function of the values' mean over the images, (cells,); by default their plain mean.
            Every score of ours is such a function: mCE of mean errors, retention of two mean accuracies. Draws for
            which it is NaN (retention of a clean accuracy of 0) do not count.
        level: how often such intervals hold the truth.
        resamples: how many times the images are drawn with replacement.
    """
    rows, score = _rows(values, "values"), statistic or _plain_mean
    drawn = [score(means) for means in resampled_means(rows, rng=rng, resamples=resamples)]
    return interval_of(score(rows.mean(axis=0)), drawn, level=level)


def paired_difference(
    first: ArrayLike,
    second: ArrayLike,
    *,
    rng: np.random.Generator,
    statistic: Statistic | None = None,
    level: float = 0.95,
    resamples: int = 2000,
) -> Interval:
    """The interval of ``first`` minus ``second``, two models on the same images in the same order.

    Both are resampled together, so what is hard for both cancels out; arguments as in :func:`bootstrap_interval`.
    """
    one, other, score = _rows(first, "first"), _rows(second, "second"), statistic or _plain_mean
    if one.shape != other.shape:
        raise HoldfastError(f"first and second must be of the same images, got shapes {one.shape} and {other.shape}")

    def difference(means: NDArray[np.float64]) -> float:
        return score(means[: one.shape[1]]) - score(means[one.shape[1] :])

    return bootstrap_interval(np.hstack([one, other]), rng=rng, statistic=difference, level=level, resamples=resamples)


def resampled_means(
    rows: NDArray[np.float64], *, rng: np.random.Generator, resamples: int = 2000, draw: Draw | None = None
) -> NDArray[np.float64]:
    """The means of every column over images drawn with replacement, (resamples, columns), from (images, columns).

    All columns of one row of the result are means over the same draw, so any function of them has its bootstrap here.
    ``draw`` says how often every image is drawn where they are not drawn one by one.
    """
    if resamples < 1:
        raise HoldfastError(f"resamples must be at least 1, got {resamples}")
    count = len(rows)
    at_once = max(1, _CHUNK // count)
    means = np.empty((resamples, rows.shape[1]))
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        times = np.stack([draw(rng) if draw is not None else _one_by_one(count, rng) for _ in range(size)])
        means[start : start + size] = times @ rows / count
    return means


def _one_by_one(count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.bincount(rng.integers(count, size=count), minlength=count)


def interval_of(value: float, drawn: ArrayLike, *, level: float = 0.95) -> Interval:
    """The middle ``level`` of what was drawn, around ``value``; NaN does not count."""
    if not 0 < level < 1:
        raise HoldfastError(f"level must be between 0 and 1, got {level}")
    array = np.asarray(drawn, dtype=np.float64)
    array = array[~np.isnan(array)]
    low, high = np.quantile(array, [(1 - level) / 2, (1 + level) / 2]) if len(array) else (np.nan, np.nan)
    return Interval(value, float(low), float(high), level)


def paired_over_seeds(
    first: ArrayLike,
    second: ArrayLike,
    *,
    rng: np.random.Generator,
    statistics: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None,
    level: float = 0.95,
    resamples: int = 2000,
) -> Interval:
    """The interval of ``first`` minus ``second`` over the choice of images and of seeds: (seeds, images[, cells]).

    Both are resampled together: the images, the same for all seeds, and the seeds, the same for both. The score is the
    mean over the seeds of each one's; ``statistics`` gives it for many draws at once, (…, cells) → (…), by default the
    plain mean. Other arguments as in :func:`bootstrap_interval`. A few seeds can only hint at how much seeds matter:
    with three, such an interval is on the narrow side.
    """
    statistics = statistics or (lambda means: means.mean(axis=-1))
    one, other = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if one.shape != other.shape or one.ndim not in (2, 3):
        raise HoldfastError(
            f"first and second must be (seeds, images) or (seeds, images, cells), got {one.shape} and {other.shape}"
        )
    seeds = len(one)
    both = np.stack([one.reshape(seeds, one.shape[1], -1), other.reshape(seeds, one.shape[1], -1)], axis=1)
    side_by_side = both.transpose(2, 0, 1, 3)  # images, seeds, 2, cells
    rows = _rows(side_by_side.reshape(one.shape[1], -1), "first and second")

    def differences(means: NDArray[np.float64]) -> NDArray[np.float64]:
        """(draws, seeds × 2 × cells) → (draws, seeds)."""
        scores = statistics(means.reshape(len(means), seeds, 2, -1))
        return scores[..., 0] - scores[..., 1]

    value = float(differences(rows.mean(axis=0)[None]).mean())
    drawn = differences(resampled_means(rows, rng=rng, resamples=resamples))
    chosen = np.stack([rng.integers(seeds, size=seeds) for _ in range(len(drawn))])
    return interval_of(value, np.take_along_axis(drawn, chosen, axis=1).mean(axis=1), level=level)


def over_seeds(scores: ArrayLike) -> Spread:
    """Mean ± sample standard deviation of one score per seed."""
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim != 1 or not array.size or not np.isfinite(array).all():
        raise HoldfastError(f"scores must be one finite number per seed, got {array.tolist()}")
    std = float(array.std(ddof=1)) if len(array) > 1 else float("nan")
    return Spread(float(array.mean()), std, len(array))


def _plain_mean(means: NDArray[np.float64]) -> float:
    return float(means.mean())


def _rows(values: ArrayLike, name: str) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or not array.size:
        raise HoldfastError(f"{name} must be (images,) or (images, cells) and not empty, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise HoldfastError(f"{name} must be finite, got NaN or infinity in {(~np.isfinite(array)).sum()} places")
    return array
