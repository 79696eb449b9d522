"""Draws of C-bar's kinds."""

import numpy as np

from holdfast.corruptions.c_bar_draws import permuted, signs
from holdfast.corruptions.rng import LegacyDraws


def test_a_permutation_is_numpys_own():
    expected = list("abcdefgh")
    np.random.RandomState(5).shuffle(expected)
    assert permuted(LegacyDraws(5), "abcdefgh") == expected


def test_signs_are_drawn_one_by_one():
    found = signs(LegacyDraws(0), 400)
    assert set(found) == {-1, 1}
    assert abs(sum(found)) < 80
    assert signs(LegacyDraws(0), 3) == found[:3]
