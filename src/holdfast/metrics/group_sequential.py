"""Bounds of a test that is looked at after every round: group-sequential, by spending its error little by little.

A test of a number of images chosen beforehand would err more often with every look. Lan and DeMets 1983: at every look
a bound is chosen so that the probability of having crossed one by then is what a spending function allows; here
α·t, t the share of the information (Kim and DeMets 1987, with power 1). Information is 1/SE²; estimates of a score on
more and more images move in it like a Brownian motion, means and ratios alike (Scharfstein, Tsiatis and Robins 1997).
The probabilities come from the recursion of Armitage, McPherson and Rowe 1969, as in Jennison and Turnbull 2000,
chapter 19. Bounds depend on the planned looks only, so they are known before the first image.
"""

from functools import partial
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri, stdtrit

from holdfast.errors import HoldfastError
from holdfast.metrics.intervals import Estimate, Interval, Scale, interval_with

Bounds = NDArray[np.float64]
# either kind of wrong statement, of all rules of a gate together; measured, it is at most 5 %, see docs/production.md
ERROR = 0.04
# assumed share of the variance of a difference that all cells of an image have in common: 0.2 to 0.35 of models that
# were trained apart, 0.01 to 0.04 of one that hardly changed. A smaller true share errs more often than planned and a
# larger one less often, so the smallest is assumed; without any share in common, the error is 5 %
ALIKE = 0.02
POINTS = 401  # of the grid on which densities are integrated; bounds are exact to about 0.001
LOWEST, HIGHEST = -8.0, 12.0  # standard deviations, of the grid and of bounds


def spending_bounds(information: ArrayLike, *, alpha: float) -> Bounds:
    """One-sided bounds in standard errors for all looks, from the share of the information at each.

    Under the null hypothesis, the standardised estimate crosses the bounds of the first looks up to the share t with
    probability α·t.
    """
    shares = np.asarray(information, dtype=np.float64)
    if not 0 < alpha < 0.5:
        raise HoldfastError(f"alpha must be between 0 and 0.5, got {alpha}")
    if not len(shares) or (np.diff(shares, prepend=0) <= 0).any() or shares[-1] > 1:
        raise HoldfastError(f"information must be increasing shares from above 0 to 1, got {shares.tolist()}")
    bounds = [-float(ndtri(alpha * shares[0]))]
    places = np.linspace(LOWEST, bounds[0], POINTS)  # z values that have not crossed a bound, and their density
    density = np.exp(-(places**2) / 2) / np.sqrt(2 * np.pi)
    for before, now in pairwise(shares):
        step, reached, weights = np.sqrt(now - before), np.sqrt(before) * places, density * _simpson(places)
        spend = partial(_excess, now=now, step=step, reached=reached, weights=weights, allowed=alpha * (now - before))
        bounds.append(float(brentq(spend, -1.0, HIGHEST)))
        places = np.linspace(LOWEST, bounds[-1], POINTS)
        moves = (np.sqrt(now) * places[:, None] - reached) / step
        density = np.exp(-(moves**2) / 2) @ weights * np.sqrt(now / (2 * np.pi)) / step
    return np.array(bounds)


def _excess(bound: float, *, now: float, step: float, reached: Bounds, weights: Bounds, allowed: float) -> float:
    """Probability of crossing this bound for the first time, minus what is allowed."""
    return float(weights @ ndtr((reached - np.sqrt(now) * bound) / step)) - allowed


def planned_information(images: ArrayLike, passes: ArrayLike) -> NDArray[np.float64]:
    """Share of the information at every look, from the number of images and of passes (an image in a cell) by then.

    Answers to one image in several cells are alike; how much so is assumed, so that the bounds do not depend on data.
    """
    used, made = np.asarray(images, dtype=np.float64), np.asarray(passes, dtype=np.float64)
    variance = ALIKE / used + (1 - ALIKE) / made
    return np.asarray(variance[-1] / variance)


def interval_at_look(
    estimate: Estimate, bound: float, *, scale: Scale = "plain", images: int, whole: float = 1.0
) -> Interval:
    """The interval between both bounds of a look, as a two-sided interval of the bound's level.

    The normal bound is exchanged for Student's with the same tail, because the error comes from few groups.
    """
    tail = float(ndtr(-bound))
    quantile = -float(stdtrit(estimate.freedom, tail)) if estimate.freedom > 0 else inf
    about: Any = {"scale": scale, "images": images, "whole": whole, "level": 1 - 2 * tail}
    return interval_with(estimate, quantile=quantile, **about)


def _simpson(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of Simpson's rule on an odd number of equally distant places."""
    weights = np.ones(len(places))
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    return weights * (places[1] - places[0]) / 3
