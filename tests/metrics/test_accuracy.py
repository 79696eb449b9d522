"""Top-1, top-5 and the 200-class restriction."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from holdfast.errors import HoldfastError
from holdfast.metrics import accuracy, correct, predicted, ranked, restricted, restricted_classes
from holdfast.published import published

LOGITS = np.array([[5.0, 4, 3, 2, 1, 0], [0, 1, 2, 3, 4, 5], [1, 1, 0, 0, 0, 0], [0, 9, 0, 0, 0, 8]])


def test_hand_counted_top_1_and_top_5():
    targets = [0, 0, 1, 5]
    assert correct(LOGITS, targets).tolist() == [True, False, False, False]
    assert correct(LOGITS, targets, top=2).tolist() == [True, False, True, True]
    assert accuracy(LOGITS, targets) == 0.25
    assert accuracy(LOGITS, targets, top=5) == 0.75


def test_of_equal_logits_the_lower_index_wins():
    assert ranked([[0.0, 1, 1, 0, 2]], count=5).tolist() == [[4, 1, 2, 0, 3]]
    assert predicted([[1.0, 1.0]]).tolist() == [0]


@settings(max_examples=50, deadline=None)
@given(arrays(np.float64, (7, 9), elements=st.integers(-3, 3).map(float)), st.integers(0, 8))
def test_more_guesses_never_hurt_and_all_guesses_always_hit(logits, target):
    targets = np.full(7, target)
    hits = [correct(logits, targets, top=top) for top in range(1, 10)]
    assert all((fewer <= more).all() for fewer, more in pairwise(hits))
    assert hits[-1].all()
    np.testing.assert_array_equal(hits[0], predicted(logits) == targets)


@pytest.mark.parametrize(("dataset", "images"), [("imagenet_a", 7500), ("imagenet_r", 30_000)])
def test_the_restriction_keeps_200_ascending_classes_in_the_order_of_their_folders(dataset, images):
    table = published(f"{dataset}_indices")
    indices = restricted_classes(dataset)
    assert len(set(indices)) == len(set(table["wnids"])) == 200
    assert (np.diff(indices) > 0).all()
    assert table["wnids"] == sorted(table["wnids"])
    assert table["images"] == images
    np.testing.assert_array_equal(restricted(np.arange(1000.0), dataset), indices)


def test_the_two_sets_share_86_classes():
    assert len(np.intersect1d(restricted_classes("imagenet_a"), restricted_classes("imagenet_r"))) == 86


def test_a_model_that_prefers_a_class_outside_the_set_is_still_right():
    logits = np.zeros((1, 1000))
    logits[0, 0], logits[0, 11] = 9, 1  # class 0 is not in ImageNet-A; 11 is its second
    assert accuracy(restricted(logits, "imagenet_a"), [1]) == 1.0


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: accuracy([[np.nan, 1.0]], [0]), "logits must be numbers, got NaN in 1 rows"),
        (lambda: accuracy([["a", "b"]], [0]), "logits must be numbers, got <U1"),
        (lambda: accuracy([[1.0, 2.0]], [2]), "targets must be 0 to 1, got 2 to 2"),
        (lambda: accuracy([[1.0, 2.0]], [0, 1]), r"targets must be integers of shape \(1,\)"),
        (lambda: accuracy([[1.0, 2.0]], [0.0]), "targets must be integers"),
        (lambda: accuracy([[1.0, 2.0]], [0], top=5), "at least 5 classes"),
        (lambda: accuracy(np.zeros((0, 3)), np.zeros(0, int)), "at least one image, got none"),
        (lambda: restricted(np.zeros((2, 10)), "imagenet_a"), "1000 ImageNet classes, got 10"),
        (lambda: restricted(np.zeros((2, 1000)), "imagenet_o"), "dataset must be imagenet_a or imagenet_r"),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        call()
