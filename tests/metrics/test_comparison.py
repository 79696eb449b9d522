"""Two models on the same images, and several seeds of one."""

import numpy as np
import pytest

from holdfast.errors import HoldfastError
from holdfast.metrics.comparison import compare, over_runs
from holdfast.metrics.intervals import paired_difference
from tests.records.making_records import cell, corrupted, flat, records, share


def pair(count=300, *, gain=0.05, seed=0):
    """Two models that agree on most images; the first is right on some more."""
    rng = np.random.default_rng(seed)
    hard = rng.random(count)
    second = hard < 0.6
    first = second | (rng.random(count) < gain)
    return records({"clean": cell(first)}, model="ours"), records({"clean": cell(second)}, model="theirs")


def test_a_difference_is_that_of_the_paired_jackknife():
    ours, theirs = pair(150)
    difference = compare(ours, theirs).differences["clean"]
    alone = paired_difference(ours.cells["clean"].right, theirs.cells["clean"].right)
    interval = difference.interval
    assert (interval.value, interval.low, interval.high) == pytest.approx(
        (100 * alone.value, 100 * alone.low, 100 * alone.high)
    )
    assert difference.first - difference.second == pytest.approx(interval.value)


def test_pairing_finds_what_separate_intervals_hide():
    ours, theirs = pair(600)
    first, second = ours.summary()["clean"], theirs.summary()["clean"]
    assert first.low < second.high  # the two intervals overlap
    assert compare(ours, theirs).differences["clean"].verdict == "better"
    assert compare(theirs, ours).differences["clean"].verdict == "worse"
    assert compare(ours, ours).differences["clean"].verdict == "unclear"


def test_models_of_one_name_are_told_apart():
    sides = [records({"clean": cell(share(error, count=10))}, model="vit") for error in (0.1, 0.2)]
    assert str(compare(*sides, intervals=False)).startswith("vit (first) minus vit (second), 10 images")


def test_lower_is_better_for_errors():
    good = records(corrupted(flat(0.2), count=10), model="good")
    bad = records(corrupted(flat(0.6), count=10), model="bad")
    comparison = compare(good, bad)
    assert comparison.differences["mce"].verdict == "better"
    assert comparison.differences["mce"].interval.value < 0
    assert comparison.differences["accuracy/fog"].interval.value == pytest.approx(40)
    assert "good minus bad, 10 images" in str(comparison)


def test_only_shared_cells_and_images_are_compared():
    one = records({"clean": cell([True, False, True], ids=["a", "b", "c"]), "pgd5": cell([True] * 3, ids=list("abc"))})
    other = records({"clean": cell([True, True], ids=["c", "b"])})
    comparison = compare(one, other)
    assert comparison.images == 2
    assert "attack/pgd5" not in comparison.differences
    assert comparison.differences["clean"].first == 50
    assert comparison.differences["clean"].second == 100


def test_a_partial_comparison_says_so():
    cells = corrupted(flat(0.5), count=4)
    fewer = {name: held for name, held in cells.items() if name != "snow/2"}
    differences = compare(records(cells), records(fewer)).differences
    assert "mce" not in differences
    assert "mce_partial" in differences


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"pgd5": cell([True])}, "must have a common cell"),
        ({"clean": cell([True], ids=["another"])}, "at least one common image"),
    ],
)
def test_records_with_nothing_in_common_are_refused(other, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        compare(records({"clean": cell([True])}), records(other))


def test_images_of_another_class_are_not_the_same_data():
    one, other = cell([True, True]), cell([True, True])
    other.targets[1] = 7
    with pytest.raises(HoldfastError, match=r"same targets, but 1 images have another class \(image 1"):
        compare(records({"clean": one}), records({"clean": other}))


def test_over_seeds_by_hand():
    runs = [records({"clean": cell(share(error, count=10))}) for error in (0.1, 0.2, 0.3)]
    spread = over_runs(runs)["clean"]
    assert (spread.mean, spread.std, spread.count) == pytest.approx((80, 10, 3))
    mixed = over_runs([*runs, records({"clean": cell([True]), "pgd5": cell([True])})])
    assert "attack/pgd5" not in mixed
    with pytest.raises(HoldfastError, match="runs must hold at least one"):
        over_runs([])


def test_a_score_that_no_seed_has_is_told_with_a_reason():
    runs = [records({"clean": cell(share(0.1, count=10))}, data="digits", classes=10)] * 2
    with pytest.raises(HoldfastError, match="got 'mce': mCE divides by a baseline's errors"):
        over_runs(runs)["mce"]
