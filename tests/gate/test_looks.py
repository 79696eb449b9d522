"""Planned looks of a gate that stops early, and intervals at them."""

import numpy as np
import pytest
from scipy.stats import norm

from holdfast.evaluation.order import depths as every_depth
from holdfast.gate.looks import Look, Looks, difference_at_look
from holdfast.metrics.group_sequential import ERROR
from holdfast.metrics.jackknife import image_groups
from holdfast.metrics.replicates import replicate
from holdfast.metrics.scoring.base import ScoreDefinition

CELLS = tuple(f"fog/{severity}" for severity in range(1, 6))
LOOKS = Looks(1000, CELLS, (8, 20, 100, 400, 1000), rules=2)
MEAN = ScoreDefinition(
    "mean",
    "mean",
    "%",
    "high",
    "",
    lambda means: 100 * np.mean([means[cell, "right"] for cell in CELLS], axis=0),
    cells=CELLS,
)


def test_bounds_start_high_and_end_above_that_of_a_single_look() -> None:
    bounds = [LOOKS.at(CELLS, dict.fromkeys(CELLS, count)).bound for count in (8, 20, 100, 400, 1000)]
    assert bounds == sorted(bounds, reverse=True)
    assert norm.isf(ERROR / 2) < bounds[-1] < bounds[0] < 4


@pytest.mark.parametrize("alike", [0.0, 0.03, 0.3])
def test_the_error_holds_whatever_share_the_cells_of_an_image_have_in_common(alike: float) -> None:
    """Simulated estimates, whose information is that of the true share and not of the one that bounds assume."""
    cells, depths = tuple(map(str, range(75))), np.array(list(every_depth(5000)))
    looks = Looks(5000, cells, tuple(depths.tolist()))
    bounds = np.array([looks.at(cells, dict.fromkeys(cells, int(depth))).bound for depth in depths])
    information = 1 / (alike / np.minimum(5000, 75 * depths) + (1 - alike) / (75 * depths))
    steps = np.random.default_rng(0).normal(size=(20_000, len(depths))) * np.sqrt(np.diff(information, prepend=0))
    crossed = (np.cumsum(steps, axis=1) / np.sqrt(information) > bounds).any(axis=1).mean()
    assert 0.01 < crossed < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 20_000)


def test_a_look_is_the_last_planned_one_that_all_cells_have_reached() -> None:
    counts = {**dict.fromkeys(CELLS, 400), "fog/2": 399, "clean": 1000}
    assert LOOKS.at(CELLS, counts).bound == LOOKS.at(CELLS, dict.fromkeys(CELLS, 100)).bound
    assert np.isnan(LOOKS.at(CELLS, {}).bound)
    assert not LOOKS.at(CELLS, counts).complete
    assert LOOKS.at(["clean"], counts).complete
    assert LOOKS.at(["fog/2"], {"fog/2": 998}, 2).complete  # two images cannot be read


def test_the_clean_cell_has_looks_of_its_own() -> None:
    """It has every image that another cell has, so it is complete after the 200th image of each of the five cells."""
    early, late = (LOOKS.at(["clean"], {"clean": count}).bound for count in (40, 1000))
    assert early > late == LOOKS.at(["clean"], {"clean": 999_999}).bound


@pytest.mark.parametrize("differ", [0, 40])
def test_the_interval_of_a_difference_has_the_width_of_its_bound(differ: int) -> None:
    """One image per cell; the standard error is that of 600 pairs of answers and of one more win and one more loss."""
    rng, images, rows = np.random.default_rng(0), 600, {}
    for number, cell in enumerate(CELLS):
        rows[cell] = np.arange(number * 120, number * 120 + 120)
    old = rng.random(images) < 0.5
    new = old.copy()
    new[rng.choice(images, differ, replace=False)] ^= True
    groups = image_groups([f"{number:04d}" for number in range(images)])
    models = [
        replicate({(c, "right"): each[rows[c]].astype(float) for c in CELLS}, groups, rows=rows) for each in (new, old)
    ]
    interval = difference_at_look(MEAN, models, Look(3.0, images, False))
    apart = np.concatenate([new.astype(float) - old, [1, -1]])
    expected = 100 * apart.std(ddof=0) / np.sqrt(len(apart))
    assert interval.value == pytest.approx(100 * (new.mean() - old.mean()))
    assert (interval.high - interval.low) / 2 / 3 == pytest.approx(expected, rel=0.15)
    assert np.isnan(difference_at_look(MEAN, models, Look(float("nan"), images, False)).low)
