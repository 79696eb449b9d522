"""Scores of candidates from their records: clean, and the mean over cells that a choice or a report is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from holdfast.metrics.intervals import Interval, SeedVariance, interval_of, jackknife_estimate, with_seed_variance
from holdfast.metrics.jackknife import image_groups
from holdfast.metrics.replicates import replicate_cells, used_images
from holdfast.metrics.scoring.registry import scoring_of
from holdfast.records.records import Records


@dataclass(frozen=True, eq=False)
class Measured:
    """Clean score and mean score under what was done to the images, in percent, each (1 + groups,).

    The first entry is the score of all images, the others leave out a jackknife group; equal images have equal groups,
    so two models are compared entry by entry.
    """

    clean: NDArray[np.float64]
    bad: NDArray[np.float64]
    images: int
    label: str
    domains: Mapping[str, float] = field(
        default_factory=dict
    )  # accuracy on each domain of the clean images, in percent

    @property
    def values(self) -> tuple[float, float]:
        """Clean score and score on bad images."""
        return float(self.clean[0]), float(self.bad[0])


def measured(records: Records, *, without: Sequence[str] = ()) -> Measured:
    """The task's first score on clean images and its mean over all other cells, but for the kinds in ``without``."""
    scoring = scoring_of(records.task)
    score = next(iter(scoring.cell_scores(records.header).values()))
    used = used_images(records.cells)
    replicates = replicate_cells(records.cells, used, image_groups(used.ids, used.targets))
    of_cell = {
        name: 100 * np.asarray(score.of(replicates, name), dtype=np.float64)
        for name, cell in records.cells.items()
        if cell.spec.kind not in without
    }
    clean = next(name for name in of_cell if records.cells[name].spec.family == "clean")
    bad = [values for name, values in of_cell.items() if name != clean]
    return Measured(of_cell[clean], np.mean(bad, axis=0), len(used.ids), score.label, _of_domains(records))


def _of_domains(records: Records) -> dict[str, float]:
    """Accuracy on every domain of ``domains:DIR`` that has an image; empty for other data."""
    return {name: 100 * float(cell.right.mean()) for name, cell in records.domains.items() if len(cell)}


def gain(first: Sequence[NDArray[np.float64]], second: Sequence[NDArray[np.float64]]) -> Interval:
    """First minus second, mean over seeds, with the 95 % interval over images and, from two on, seeds."""
    apart = [one - other for one, other in zip(first, second, strict=True)]
    estimate = jackknife_estimate(np.mean(apart, axis=0))
    if len(apart) > 1:
        between = SeedVariance(float(np.var([each[0] for each in apart], ddof=1)), len(apart) - 1)
        estimate = with_seed_variance(estimate, between, count=len(apart))
    return interval_of(estimate, scale="plain", images=0)
