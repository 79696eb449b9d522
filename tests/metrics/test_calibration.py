"""NLL and calibration error against direct computations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import HoldfastError
from holdfast.metrics import (
    calibration_gaps,
    confidence,
    expected_calibration_error,
    gap_of_means,
    jackknife_interval,
    negative_log_likelihood,
)

CASES = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60)


def brute_force(confidences, correct, bins):
    """Bin by bin, from the definition: (|B| / N) · |accuracy(B) − confidence(B)|."""
    total = 0.0
    for number in range(bins):
        low, high = number / bins, (number + 1) / bins
        inside = [i for i, c in enumerate(confidences) if (low < c <= high) or (number == 0 and c == 0)]
        if inside:
            accuracy = sum(correct[i] for i in inside) / len(inside)
            sureness = sum(confidences[i] for i in inside) / len(inside)
            total += len(inside) / len(confidences) * abs(accuracy - sureness)
    return total


def test_calibration_error_by_hand():
    # two bins: (0.2, wrong), (0.4, right) → |0.5 − 0.3| · 2/4; (0.8, right), (1.0, right) → |1 − 0.9| · 2/4
    ece = expected_calibration_error([0.2, 0.4, 0.8, 1.0], [False, True, True, True], bins=2)
    assert ece == pytest.approx(0.5 * 0.2 + 0.5 * 0.1)


@settings(max_examples=100, deadline=None)
@given(CASES, st.sampled_from([1, 2, 4, 8, 16]))  # powers of two: edges exact in both computations
def test_calibration_error_equals_the_definition(cases, bins):
    confidences, correct = zip(*cases, strict=True)
    assert expected_calibration_error(confidences, correct, bins=bins) == pytest.approx(
        brute_force(confidences, correct, bins), abs=1e-12
    )


def test_fifteen_bins_on_many_images_equal_the_definition():
    rng = np.random.default_rng(0)
    confidences, correct = rng.random(2000), rng.random(2000) < 0.6
    assert expected_calibration_error(confidences, correct) == pytest.approx(
        brute_force(confidences, correct, 15), abs=1e-12
    )


def test_a_model_as_sure_as_it_is_right_is_calibrated():
    correct = np.repeat([True, False], [3, 1])
    assert expected_calibration_error(np.full(4, 0.75), correct) == 0
    assert expected_calibration_error(np.ones(4), correct) == 0.25


def test_the_calibration_error_has_an_interval():
    rng = np.random.default_rng(1)
    confidences = rng.uniform(0.5, 1, 500)
    gaps = calibration_gaps(confidences, rng.random(500) < confidences - 0.2)
    interval = jackknife_interval(gaps, statistic=gap_of_means, scale="proportion")
    assert interval.low < 0.2 < interval.high


def test_nll_by_hand():
    logits = np.log([[0.7, 0.2, 0.1], [0.25, 0.25, 0.5]])
    nll = negative_log_likelihood(logits, [0, 1])
    np.testing.assert_allclose(nll, [-np.log(0.7), -np.log(0.25)])
    np.testing.assert_allclose(confidence(logits), [0.7, 0.5])


def test_nll_stays_finite_for_large_logits_and_ignores_a_common_shift():
    logits = np.array([[1e4, 0.0, -1e4]])
    assert negative_log_likelihood(logits, [2]) == pytest.approx([2e4])
    np.testing.assert_allclose(
        negative_log_likelihood([[1.0, 2.0]], [0]), negative_log_likelihood([[101.0, 102.0]], [0])
    )


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: expected_calibration_error([0.5, 1.2], [True, True]), "probabilities from 0 to 1"),
        (lambda: expected_calibration_error([np.nan], [True]), "probabilities from 0 to 1"),
        (lambda: expected_calibration_error([0.5], [0.5]), "correct must be true or false"),
        (lambda: expected_calibration_error([0.5], [True, False]), r"got shapes \(1,\) and \(2,\)"),
        (lambda: expected_calibration_error([], []), "one value per image"),
        (lambda: expected_calibration_error([0.5], [True], bins=0), "bins must be at least 1"),
        (lambda: negative_log_likelihood([[np.inf, 0.0]], [0]), "logits must be finite"),
        (lambda: negative_log_likelihood([[np.nan, 0.0]], [0]), "got NaN in 1 rows"),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        call()
