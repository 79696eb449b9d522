"""Group-sequential bounds, against multivariate normal probabilities, simulation and a fixed number of images."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from holdfast.errors import HoldfastError
from holdfast.metrics.group_sequential import interval_at_look, planned_information, spending_bounds
from holdfast.metrics.intervals import Estimate


def test_a_single_look_is_the_fixed_test() -> None:
    assert spending_bounds([1.0], alpha=0.025)[0] == pytest.approx(norm.ppf(0.975))


@pytest.mark.parametrize("shares", [[0.5, 1.0], [0.1, 0.4, 1.0], [0.2, 0.3, 0.9]])
def test_the_error_spent_at_every_look_is_the_planned_one(shares: list[float]) -> None:
    """The probability of never having crossed is a multivariate normal one; SciPy integrates it in another way."""
    alpha, bounds = 0.025, spending_bounds(shares, alpha=0.025)
    covariance = np.sqrt(np.minimum.outer(shares, shares) / np.maximum.outer(shares, shares))
    for count in range(1, len(shares) + 1):
        held = multivariate_normal(np.zeros(count), covariance[:count, :count]).cdf(bounds[:count])
        assert 1 - held == pytest.approx(alpha * shares[count - 1], abs=2e-5)


def test_many_uneven_looks_by_simulation() -> None:
    rng, shares = np.random.default_rng(0), np.geomspace(0.03, 1, 40)
    steps = rng.normal(size=(40_000, 40)) * np.sqrt(np.diff(shares, prepend=0))
    standardised = np.cumsum(steps, axis=1) / np.sqrt(shares)
    bounds = spending_bounds(shares, alpha=0.05)
    crossed = (standardised > bounds).any(axis=1).mean()
    assert crossed == pytest.approx(0.05, abs=3 * np.sqrt(0.05 * 0.95 / 40_000))
    assert (standardised > norm.ppf(0.95)).any(axis=1).mean() > 0.15  # looking without spending


def test_information_of_images_and_passes() -> None:
    """One cell per image first, then more cells of the same images, which say less and less."""
    shares = planned_information([600, 5000, 5000, 5000], [600, 5000, 50_000, 375_000])
    assert shares[-1] == 1
    assert shares[1] / shares[0] == pytest.approx(5000 / 600)
    assert 1 < shares[2] / shares[1] < 10  # ten times the passes, on the same images


def test_the_interval_of_a_look() -> None:
    estimate = Estimate(-2.0, 0.5, 99)
    interval = interval_at_look(estimate, 3.0, images=1000, whole=100)
    assert interval.high - interval.low == pytest.approx(2 * 0.5 * 3.0, rel=0.05)
    assert interval.high - interval.low > 2 * 0.5 * 3.0  # Student's tail
    assert interval.level == pytest.approx(1 - 2 * norm.sf(3.0))
    assert np.isnan(interval_at_look(Estimate(1.0, float("nan"), 0), 3.0, images=1).low)


@pytest.mark.parametrize("shares", [[], [0.5, 0.5], [0.0, 1.0], [0.5, 1.1], [0.9, 0.5]])
def test_shares_must_increase_to_one(shares: list[float]) -> None:
    with pytest.raises(HoldfastError, match="information must be increasing shares"):
        spending_bounds(shares, alpha=0.05)


def test_alpha_must_be_a_probability() -> None:
    with pytest.raises(HoldfastError, match="alpha must be between"):
        spending_bounds([1.0], alpha=0.7)
