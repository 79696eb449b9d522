"""The columns of a study's table, as functions of the images' means; so one bootstrap serves them all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from holdfast.analysis.registry import ANALYSES
from holdfast.errors import HoldfastError
from holdfast.metrics.intervals import Interval, Spread, over_seeds, paired_over_seeds
from holdfast.studies.results import RunResult

Means = Mapping[str, float]
RESAMPLES = 4000


@dataclass(frozen=True)
class Column:
    """One column: its heading, what it says, and its value from the means over the images.

    Attributes:
        title: the heading.
        needs: the ingredients it is made of, see :func:`ingredients`.
        value: from the ingredients' means.
        better: ``higher`` or ``lower``.
        says: one line for the reader.
    """

    title: str
    needs: tuple[str, ...]
    value: Callable[[Means], float]
    better: str
    says: str


def _percent(name: str) -> Callable[[Means], float]:
    return lambda means: 100 * means[name]


@lru_cache  # the same function again, so that the same column is equal to itself
def _plain(name: str) -> Callable[[Means], float]:
    return lambda means: means[name]


def _retention(means: Means) -> float:
    return 100 * means["corrupted"] / means["clean"] if means["clean"] else 0.0


COLUMNS: dict[str, Column] = {  # of evaluation; :func:`columns` adds those of analyses
    "clean": Column("clean", ("clean",), _percent("clean"), "higher", "accuracy on clean test images, %"),
    "corrupted": Column(
        "C", ("corrupted",), _percent("corrupted"), "higher", "mean accuracy over 15 corruptions × 5 severities, %"
    ),
    "retention": Column(
        "retention", ("clean", "corrupted"), _retention, "higher", "what remains under corruption, C / clean, %"
    ),
    "occluded": Column(
        "occluded",
        ("occluded",),
        _percent("occluded"),
        "higher",
        "accuracy with a random tenth of the patches covered, mean over the masks, %",
    ),
    "pgd5": Column("PGD-5", ("pgd5",), _percent("pgd5"), "higher", "accuracy under PGD, ε 1/255, 5 steps, %"),
    "pgd3_adv": Column(
        "PGD 4/255", ("pgd3_adv",), _percent("pgd3_adv"), "higher", "accuracy under PGD, ε 4/255, 3 steps, %"
    ),
}


def columns() -> dict[str, Column]:
    """All columns: those of evaluation, then those that analyses offer."""
    offered = [column for analysis in ANALYSES.values() for column in analysis.columns]
    return COLUMNS | {
        each.name: Column(each.title, (each.name,), _plain(each.name), each.better, each.says) for each in offered
    }


def ingredients(result: RunResult) -> dict[str, np.ndarray]:
    """Per image: what the columns are made of, as far as the run was measured."""
    corrupted = [values for cell, values in result.right.items() if _is_corruption(cell)]
    images = {
        "clean": result.right.get("clean"),
        "corrupted": np.mean(corrupted, axis=0) if corrupted else None,
        "occluded": result.right.get("occlusion-random"),
        "pgd5": result.right.get("pgd5"),
        "pgd3_adv": result.right.get("pgd3-rvt-adv"),
    }
    return {name: values for name, values in images.items() if values is not None} | dict(result.measures)


def available(results: Mapping[str, Sequence[RunResult]]) -> dict[str, Column]:
    """The columns that every run of every row can fill."""
    held = [set(ingredients(run)) for runs in results.values() for run in runs]
    common = set.intersection(*held) if held else set()
    return {name: column for name, column in columns().items() if set(column.needs) <= common}


def scores(column: Column, runs: Sequence[RunResult]) -> Spread:
    """A column's mean and deviation over the seeds of a row."""
    return over_seeds([column.value(_means(run, column)) for run in runs])


def difference(column: Column, runs: Sequence[RunResult], against: Sequence[RunResult]) -> Interval:
    """How far a row is above another: paired bootstrap over images × seeds, on the seeds that both have."""
    return _difference(column, tuple(runs), tuple(against))


@lru_cache(maxsize=1024)  # tables, verdicts and plots ask for the same ones
def _difference(column: Column, runs: tuple[RunResult, ...], against: tuple[RunResult, ...]) -> Interval:
    first, second = _by_seed(runs), _by_seed(against)
    seeds = shared_seeds(runs, against)
    if not seeds:
        raise HoldfastError("two rows can be compared only where they share a seed, got none")
    return paired_over_seeds(
        np.stack([_matrix(first[seed], column) for seed in seeds]),
        np.stack([_matrix(second[seed], column) for seed in seeds]),
        rng=np.random.default_rng(0),
        statistic=lambda means: column.value(dict(zip(column.needs, means, strict=True))),
        resamples=RESAMPLES,
    )


def shared_seeds(runs: Sequence[RunResult], against: Sequence[RunResult]) -> list[int]:
    """The seeds that two rows can be compared on."""
    return sorted(set(_by_seed(runs)) & set(_by_seed(against)))


def verdict(interval: Interval, expects: str) -> str:
    """What a difference says about a claim: holds, does not hold, or not resolved."""
    if not interval.excludes_zero:
        return "not resolved"
    return "holds" if (interval.value > 0) == (expects == "higher") else "does not hold"


def _is_corruption(cell: str) -> bool:
    return cell.rpartition("/")[2].isdigit()


def _means(run: RunResult, column: Column) -> dict[str, float]:
    held = ingredients(run)
    return {name: float(np.mean(held[name])) for name in column.needs}


def _matrix(run: RunResult, column: Column) -> np.ndarray:
    """Images × ingredients; a value that is one for all images is repeated."""
    held = ingredients(run)
    images = max(len(held[name]) for name in column.needs)
    return np.stack([np.broadcast_to(held[name], images) for name in column.needs], axis=1)


def _by_seed(runs: Sequence[RunResult]) -> dict[int, RunResult]:
    return {run.seed: run for run in runs}
