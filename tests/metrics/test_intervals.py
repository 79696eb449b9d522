"""Intervals hold the truth as often as they say, also near 0 and 1 and with few seeds, and pairing sharpens them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from holdfast.corruptions import STANDARD
from holdfast.errors import HoldfastError
from holdfast.metrics import (
    corruption_errors,
    jackknife_interval,
    mean_corruption_error,
    over_seeds,
    paired_difference,
    retention,
)
from holdfast.metrics.intervals import (
    Estimate,
    SeedVariance,
    difference_interval,
    interval_of,
    score_interval,
    with_pseudo_pairs,
    with_seed_variance,
)


def generator(seed=0):
    return np.random.default_rng(seed)


def coverage(draw, truth, *, times=300):
    found = [draw() for _ in range(times)]
    return np.mean([one.low <= truth <= one.high for one in found])


@pytest.mark.parametrize(("truth", "images"), [(0.5, 30), (0.9, 30), (0.98, 30), (0.98, 100)])
def test_intervals_of_proportions_hold_the_truth_about_as_often_as_they_say(truth, images):
    rng = generator()
    held = coverage(lambda: jackknife_interval(rng.random(images) < truth, scale="proportion"), truth)
    assert 0.92 <= held <= 0.995


def test_a_model_that_is_always_right_on_few_images_is_not_certain():
    always = jackknife_interval(np.ones(8), scale="proportion")
    assert (always.value, always.high) == (1, 1)
    assert 0.4 < always.low < 0.7
    never = jackknife_interval(np.zeros(20), scale="proportion")
    assert (never.value, never.low) == (0, 0)
    assert 0.1 < never.high < 0.2


def test_a_proportion_of_0_or_1_has_wilsons_bound_with_the_number_of_images():
    quantile = stats.t.ppf(0.975, 99)
    bound = quantile**2 / (100 + quantile**2)
    assert jackknife_interval(np.zeros(100), scale="proportion").high == pytest.approx(bound)


def test_the_interval_of_an_accuracy_is_wilsons_for_one_image_less():
    right = np.repeat([1.0, 0.0], [21, 9])
    interval = jackknife_interval(right, scale="proportion")
    p, n, t = 0.7, 29, stats.t.ppf(0.975, 29)
    centre, half = (p + t**2 / (2 * n)), t * np.sqrt(p * (1 - p) / n + t**2 / (4 * n**2))
    expected = np.array([centre - half, centre + half]) / (1 + t**2 / n)
    assert (interval.low, interval.high) == pytest.approx(tuple(expected))


def test_one_image_says_nothing():
    assert jackknife_interval([1.0], scale="proportion").low == 0
    assert np.isnan(jackknife_interval([1.0]).low)


def test_the_width_is_that_of_the_normal_approximation():
    correct = np.repeat([1.0, 0.0], [700, 300])
    interval = jackknife_interval(correct, scale="proportion")
    assert interval.value == 0.7
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * np.sqrt(0.7 * 0.3 / 1000), rel=0.02)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=50),
    st.sampled_from(["proportion", "ratio", "plain"]),
    st.booleans(),
)
def test_an_estimate_never_lies_outside_its_interval(values, scale, rounded):
    rows = np.round(values) if rounded else np.array(values)
    interval = jackknife_interval(rows, scale=scale)
    if not np.isnan(interval.low):
        assert interval.low <= interval.value
    if not np.isnan(interval.high):
        assert interval.value <= interval.high
    if scale == "proportion":
        assert interval.low >= 0
        assert interval.high <= 1


def test_a_score_of_many_cells_has_an_interval_over_images():
    errors = generator(2).random((100, 75)) < 0.4  # images × cells

    def mce(means):
        table = {kind: row.tolist() for kind, row in zip(STANDARD, means.reshape(15, 5), strict=True)}
        return mean_corruption_error(corruption_errors(table))

    interval = jackknife_interval(errors, statistic=mce, scale="ratio")
    assert interval.value == pytest.approx(mce(errors.mean(axis=0)))
    assert interval.low < interval.value < interval.high


def test_images_whose_cells_agree_give_a_wider_interval_than_independent_ones():
    rng = generator(3)
    together = np.repeat(rng.random((200, 1)) < 0.5, 10, axis=1)
    apart = rng.random((200, 10)) < 0.5
    widths = [i.high - i.low for i in (jackknife_interval(v, scale="proportion") for v in (together, apart))]
    assert widths[0] > 2 * widths[1]


def test_the_interval_of_a_ratio_is_symmetric_on_the_logarithm():
    corrupted, clean = np.repeat([1, 0], [40, 60]), np.repeat([1, 0], [80, 20])
    rows = np.stack([corrupted, clean], axis=1)
    interval = jackknife_interval(rows, statistic=lambda m: retention(*m), scale="ratio")
    assert interval.value == pytest.approx(50)
    assert interval.value**2 == pytest.approx(interval.low * interval.high)
    assert 35 < interval.low < 50 < interval.high < 65


def test_a_ratio_whose_numerator_is_zero_has_the_bound_it_is_told():
    interval = score_interval(np.zeros(11), scale="ratio", images=10, highest_at_zero=0.3)
    assert (interval.value, interval.low, interval.high) == (0, 0, 0.3)


def test_an_undefined_replicate_leaves_the_bounds_undefined():
    for scale in ("ratio", "plain", "proportion"):
        interval = score_interval([0.5, 0.4, np.nan, 0.6], scale=scale, images=3)
        assert interval.value == 0.5
        assert np.isnan([interval.low, interval.high]).all()


def test_pairing_finds_a_small_difference_that_two_separate_intervals_hide():
    rng = generator(4)
    first = rng.random(1000) < 0.7
    second = first & (rng.random(1000) > 0.02)  # right where the first is, but for one in fifty
    difference = paired_difference(first, second)
    one, other = (jackknife_interval(values, scale="proportion") for values in (first, second))
    assert difference.value == pytest.approx(first.mean() - second.mean())
    assert difference.excludes_zero
    assert one.low < other.high  # the separate intervals overlap


def test_order_decides_the_sign_of_a_difference():
    rng = generator(5)
    first, second = rng.random(100), rng.random(100)
    there, back = paired_difference(first, second), paired_difference(second, first)
    assert (there.value, there.low) == pytest.approx((-back.value, -back.high))


def test_pseudo_pairs_are_those_of_bonett_and_price():
    wins, losses, images = 3, 1, 40
    values = np.repeat([1.0, -1.0, 0.0], [wins, losses, images - wins - losses])
    error = values.std(ddof=1) / np.sqrt(images)
    found = with_pseudo_pairs(Estimate(values.mean(), error, images - 1), images=images)
    better, worse = (wins + 1) / (images + 2), (losses + 1) / (images + 2)
    expected = np.sqrt((better + worse - (better - worse) ** 2) / (images + 2))
    assert found.error == pytest.approx(expected)
    assert found.value == values.mean()


def test_two_models_with_equal_answers_on_few_images_may_still_differ():
    right = generator().random(100) < 0.8
    same = paired_difference(right, right)
    assert same.value == 0
    assert same.low == -same.high < -0.02


def test_paired_differences_hold_the_truth_where_few_and_many_answers_differ():
    rng = generator(7)

    def draw(better, worse, images):
        luck = rng.random(images)
        return paired_difference(
            (luck >= worse).astype(float), ((luck < worse) | (luck >= worse + better)).astype(float)
        )

    for better, worse, images in ((0.02, 0.01, 100), (0.2, 0.1, 30)):
        assert coverage(lambda b=better, w=worse, n=images: draw(b, w, n), better - worse) >= 0.92


def test_mean_and_deviation_over_seeds():
    spread = over_seeds([80.0, 82.0, 84.0])
    assert (spread.mean, spread.std, spread.count) == (82.0, 2.0, 3)
    assert str(spread) == "82 ± 2 (n=3)"
    assert np.isnan(over_seeds([80.0]).std)


def test_the_variance_between_seeds_adds_with_satterthwaites_freedom():
    images, between = Estimate(2.0, 0.2, 10), 2.0 / 2
    found = with_seed_variance(images, SeedVariance(2.0, 1), count=2)
    assert found.value == 2
    assert found.error == pytest.approx(np.sqrt(between + 0.04))
    assert found.freedom == pytest.approx((between + 0.04) ** 2 / (between**2 / 1 + 0.04**2 / 10))
    assert with_seed_variance(images, SeedVariance(0.0, 0), count=1) == images


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: jackknife_interval([]), "values must be .* and not empty"),
        (lambda: jackknife_interval([0.5, np.nan]), "values must be finite, got NaN or infinity in 1"),
        (lambda: jackknife_interval([1.0, 0.0], level=95), "level must be between 0 and 1, got 95"),
        (lambda: interval_of(Estimate(1, 1, 1), scale="plain", images=2, level=0), "level must be between 0 and 1"),
        (lambda: paired_difference([1.0, 0], [1.0]), r"same shape, got \(2, 1\) and \(1, 1\)"),
        (lambda: over_seeds([]), "one finite number per seed"),
        (lambda: over_seeds([1.0, np.inf]), "one finite number per seed"),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        call()


def test_a_difference_is_the_difference_of_replicates():
    interval = difference_interval([0.1, 0.08, 0.12, 0.1], images=3)
    half = stats.t.ppf(0.975, 2) * np.sqrt(2 / 3 * 2 * 0.02**2)
    assert (interval.low, interval.high) == pytest.approx((0.1 - half, 0.1 + half))
