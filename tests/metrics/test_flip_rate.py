"""Flip probability, mFR and top-5 distance against hand-counted sequences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from holdfast.corruptions import TEST_SEQUENCES
from holdfast.errors import HoldfastError
from holdfast.metrics import (
    flip_probability,
    flips,
    mean_flip_rate,
    mean_over_kinds,
    mean_top5_distance,
    ranked,
    top5_distance,
    top5_distances,
)
from holdfast.published import published

FP = published("alexnet")["flip_probabilities"]
PERMUTATIONS = st.permutations(range(8))


@pytest.mark.parametrize(
    ("kind", "difficulty", "predictions", "expected"),
    [
        ("rotate", 1, [1, 1, 2, 2, 1], 2 / 4),  # flips at frames 2 and 4
        ("rotate", 2, [1, 1, 2, 2, 1], 3 / 3),  # 1→2, 1→2, 2→1
        ("rotate", 3, [1, 1, 2, 2, 1], 1 / 2),  # 1→2, 1→1
        ("gaussian_noise", 1, [1, 1, 2, 2, 1], 2 / 4),  # frames 2 and 3 differ from frame 0
        ("gaussian_noise", 3, [1, 1, 2, 2, 1], 2 / 4),  # the difficulty of noise is another data set
        ("shot_noise", 1, [0, 5, 5, 5, 5], 4 / 4),
        ("snow", 1, [0, 5, 5, 5, 5], 1 / 4),
        ("tilt", 1, [3, 3, 3, 3, 3], 0),
    ],
)
def test_hand_counted_flips(kind, difficulty, predictions, expected):
    assert flip_probability([predictions], kind=kind, difficulty=difficulty) == pytest.approx(expected)


def test_flip_probability_is_the_mean_over_sequences():
    predictions = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]])
    assert flips(predictions, kind="scale").tolist() == [1.0, 0.5, 0.0]
    assert flip_probability(predictions, kind="scale") == 0.5


def test_the_quoted_values_of_resnet_50_give_its_published_mfr():
    assert mean_flip_rate(FP["resnet50"], baseline=FP["values"]) == pytest.approx(58.00, abs=0.005)


def test_a_baseline_against_itself_is_100():
    assert mean_flip_rate(FP["values"], baseline=FP["values"]) == pytest.approx(100)


def test_mfr_is_a_mean_of_ratios_and_mfp_a_plain_mean():
    values, baseline = {"tilt": 0.1, "scale": 0.3}, {"tilt": 0.1, "scale": 0.6}
    assert mean_flip_rate(values, baseline=baseline, kinds=["tilt", "scale"]) == pytest.approx(75)
    assert mean_over_kinds(values, kinds=["tilt", "scale"]) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("abcde", "abcde", 0),
        ("abcde", "bacde", 2),  # two classes, one rank each
        ("abcde", "edcba", 4 + 2 + 0 + 2 + 4),
        ("abcde", "fghij", 5 + 4 + 3 + 2 + 1),  # all gone: each moves to rank 5
        ("abcde", "fabcd", 1 + 1 + 1 + 1 + 1),  # e falls out, to rank 5
        ("fabcd", "abcde", 5 + 1 + 1 + 1 + 1),  # and back, f falls out from rank 0: not symmetric
        ("abcde", "abcdf", 1),
        ("abcde", "efghi", 5 + 4 + 3 + 2 + 4),  # the largest: four gone, and the last comes first
    ],
)
def test_hand_computed_top5_distance(first, second, expected):
    first, second = ([ord(letter) for letter in letters] for letters in (first, second))
    assert top5_distance(first, second) == expected


def brute_force_distance(before, after):
    """From full rankings of all classes, rank by rank."""
    rank_after = {label: rank for rank, label in enumerate(np.argsort(-after, kind="stable"))}
    order = np.argsort(-before, kind="stable")
    return sum(abs(k - min(rank_after[order[k]], 5)) for k in range(5))


@settings(max_examples=100, deadline=None)
@given(arrays(np.float64, (2, 9), elements=st.integers(0, 4).map(float)))
def test_five_classes_per_frame_say_as_much_as_the_full_ranking_also_with_ties(logits):
    before, after = ranked(logits, count=5)
    assert top5_distance(before, after) == brute_force_distance(*logits)


@settings(max_examples=30, deadline=None)
@given(PERMUTATIONS, PERMUTATIONS)
def test_top5_distance_is_zero_exactly_for_equal_top_fives(first, second):
    distance = top5_distance(first[:5], second[:5])
    assert 0 <= distance <= 18
    assert (distance == 0) == (first[:5] == second[:5])


def test_top5_distances_follow_the_frame_rule_of_their_kind():
    here, there = [0, 1, 2, 3, 4], [5, 6, 7, 8, 9]
    sequence = [[here, there, there, here]]
    assert top5_distances(sequence, kind="rotate").tolist() == [10.0]  # 15, 0, 15
    assert top5_distances(sequence, kind="shot_noise").tolist() == [10.0]  # 15, 15, 0
    assert mean_top5_distance([[here, there, there, there]], kind="rotate") == 5.0
    assert mean_top5_distance([[here, there, there, there]], kind="shot_noise") == 15.0
    assert mean_top5_distance(sequence, kind="rotate", difficulty=3) == 0.0


@settings(max_examples=30, deadline=None)
@given(arrays(np.int64, (3, 6), elements=st.integers(0, 2)), st.sampled_from(TEST_SEQUENCES))
def test_renaming_the_classes_changes_no_flip(predictions, kind):
    assert flip_probability(7 - predictions, kind=kind) == flip_probability(predictions, kind=kind)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: flips([[0, 1]], kind="rotat"), "kind must be a perturbation sequence, got 'rotat'; did you mean"),
        (lambda: flips([0, 1], kind="rotate"), r"integers \(sequences, frames\)"),
        (lambda: flips([[0.0, 1.0]], kind="rotate"), "predictions must be integers"),
        (lambda: flips([[0, 1]], kind="rotate", difficulty=2), "difficulty must be from 1 to 1 for 2 frames, got 2"),
        (lambda: flips([[0, 1]], kind="rotate", difficulty=0), "difficulty must be from 1"),
        (lambda: top5_distance([1, 2, 3], [1, 2, 3]), "first must hold five class indices"),
        (lambda: top5_distances(np.zeros((3, 5), int), kind="rotate"), r"must be \(sequences, frames, 5\)"),
        (lambda: mean_over_kinds({"tilt": 0.1}), "values must have 10 kinds, but these are missing: gaussian_noise"),
        (lambda: mean_flip_rate(FP["values"], baseline=FP["values"] | {"tilt": 0.0}), "but is not for tilt"),
        (lambda: mean_flip_rate(FP["values"] | {"tilt": np.nan}, baseline=FP["values"]), "values must be finite"),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        call()
