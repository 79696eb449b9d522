"""Bootstrap intervals: they hold the truth as often as they say, and pairing sharpens a comparison."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.corruptions import STANDARD
from holdfast.errors import HoldfastError
from holdfast.metrics import (
    bootstrap_interval,
    corruption_errors,
    mean_corruption_error,
    over_seeds,
    paired_difference,
    retention,
)
from holdfast.metrics import intervals as intervals_module


def generator(seed=0):
    return np.random.default_rng(seed)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    rng, truth, held = generator(), 0.7, 0
    for _ in range(200):
        interval = bootstrap_interval(rng.random(200) < truth, rng=rng, resamples=200)
        held += interval.low <= truth <= interval.high
    assert 0.90 <= held / 200 <= 0.985  # 0.95 ± what 200 trials and 200 resamples allow


def test_the_width_is_that_of_the_normal_approximation():
    correct = np.repeat([1.0, 0.0], [700, 300])
    interval = bootstrap_interval(correct, rng=generator())
    assert interval.value == 0.7
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * np.sqrt(0.7 * 0.3 / 1000), rel=0.1)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 1), min_size=1, max_size=50), st.integers(0, 99))
def test_intervals_hold_the_mean(values, seed):
    interval = bootstrap_interval(values, rng=generator(seed), resamples=400)
    assert interval.low - 1e-12 <= interval.value <= interval.high + 1e-12
    assert interval.value == pytest.approx(np.mean(values))


def test_the_seed_decides_the_interval_and_the_chunk_size_does_not(monkeypatch):
    values = generator(1).random((50, 3))
    first, again, other = (bootstrap_interval(values, rng=generator(seed), resamples=200) for seed in (0, 0, 1))
    assert first == again != other
    monkeypatch.setattr(intervals_module, "_CHUNK", 120)
    in_pieces = bootstrap_interval(values, rng=generator(0), resamples=200)
    assert (in_pieces.low, in_pieces.high) == pytest.approx((first.low, first.high))


def test_a_score_of_many_cells_has_an_interval_over_images():
    errors = generator(2).random((100, 75)) < 0.4  # images × cells

    def mce(means):
        table = {kind: row.tolist() for kind, row in zip(STANDARD, means.reshape(15, 5), strict=True)}
        return mean_corruption_error(corruption_errors(table))

    interval = bootstrap_interval(errors, rng=generator(), statistic=mce, resamples=100)
    assert interval.value == pytest.approx(mce(errors.mean(axis=0)))
    assert interval.low < interval.value < interval.high


def test_images_whose_cells_agree_give_a_wider_interval_than_independent_ones():
    rng = generator(3)
    together = np.repeat(rng.random((200, 1)) < 0.5, 10, axis=1)
    apart = rng.random((200, 10)) < 0.5
    widths = [i.high - i.low for i in (bootstrap_interval(v, rng=rng, resamples=300) for v in (together, apart))]
    assert widths[0] > 2 * widths[1]


def test_a_ratio_of_means_has_an_interval_too():
    corrupted, clean = np.repeat([1, 0], [40, 60]), np.repeat([1, 0], [80, 20])
    interval = bootstrap_interval(
        np.stack([corrupted, clean], axis=1), rng=generator(), statistic=lambda m: retention(*m), resamples=300
    )
    assert interval.value == pytest.approx(50)
    assert 35 < interval.low < 50 < interval.high < 65


def test_pairing_finds_a_small_difference_that_two_separate_intervals_hide():
    rng = generator(4)
    first = rng.random(1000) < 0.7
    second = first & (rng.random(1000) > 0.02)  # right where the first is, but for one in fifty
    difference = paired_difference(first, second, rng=rng, resamples=500)
    one, other = (bootstrap_interval(values, rng=rng, resamples=500) for values in (first, second))
    assert difference.value == pytest.approx(first.mean() - second.mean())
    assert difference.excludes_zero
    assert one.low < other.high  # the separate intervals overlap


def test_a_model_does_not_differ_from_itself_and_order_decides_the_sign():
    rng = generator(5)
    first, second = rng.random(100), rng.random(100)
    same = paired_difference(first, first, rng=rng, resamples=50)
    assert (same.value, same.low, same.high, same.excludes_zero) == (0, 0, 0, False)
    there, back = paired_difference(first, second, rng=generator()), paired_difference(second, first, rng=generator())
    assert (there.value, there.low) == pytest.approx((-back.value, -back.high))


def test_mean_and_deviation_over_seeds():
    spread = over_seeds([80.0, 82.0, 84.0])
    assert (spread.mean, spread.std, spread.count) == (82.0, 2.0, 3)
    assert str(spread) == "82 ± 2 (n=3)"
    assert np.isnan(over_seeds([80.0]).std)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: bootstrap_interval([], rng=generator()), "values must be .* and not empty"),
        (lambda: bootstrap_interval([0.5, np.nan], rng=generator()), "values must be finite, got NaN or infinity in 1"),
        (lambda: bootstrap_interval([1.0], rng=generator(), level=95), "level must be between 0 and 1, got 95"),
        (lambda: bootstrap_interval([1.0], rng=generator(), resamples=0), "resamples must be at least 1"),
        (lambda: paired_difference([1.0, 0], [1.0], rng=generator()), r"same images, got shapes \(2, 1\) and \(1, 1\)"),
        (lambda: over_seeds([]), "one finite number per seed"),
        (lambda: over_seeds([1.0, np.inf]), "one finite number per seed"),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        call()
