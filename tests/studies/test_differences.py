"""Differences between rows of a study: the variance of images and seeds, and what their intervals cover."""

import numpy as np
import pytest

from holdfast.errors import HoldfastError
from holdfast.metrics.intervals import Estimate, interval_of, t_quantile, with_seed_variance
from holdfast.studies.columns import COLUMNS, columns
from holdfast.studies.differences import difference, pooled_rows, seed_variance, variance_of_differences
from holdfast.studies.results import RunResult
from tests.studies.test_columns import run


def study(*, rows=4, seeds=(0, 1, 2), images=150, seed=0):
    """Rows that get single images right or wrong, with a cell of corruption."""
    rng = np.random.default_rng(seed)
    return {
        f"row {row}": [
            run(s, rng.random(images) < 0.5 + 0.05 * row, [rng.random(images) < 0.4], stability=rng.random(images))
            for s in seeds
        ]
        for row in range(rows)
    }


def test_rows_are_compared_on_the_seeds_they_share():
    a = [run(0, [1, 1], [[1, 1]]), run(1, [1, 0], [[1, 1]])]
    b = [run(1, [0, 0], [[1, 1]]), run(2, [1, 1], [[1, 1]])]
    assert difference(COLUMNS["clean"], {"a": a, "b": b}, "a", "b").value == pytest.approx(50)
    with pytest.raises(HoldfastError, match="share a seed"):
        difference(COLUMNS["clean"], {"a": a[:1], "b": b}, "a", "b")


def test_one_value_for_all_images_can_be_compared_but_one_seed_does_not_tell_how_sure_it_is():
    def rows(seeds):
        return {
            row: [run(s, [1, 0], [[1, 1]], stability=[value + 0.01 * s * sign]) for s in seeds]
            for row, value, sign in (("a", 0.8, 1), ("b", 0.5, -1))
        }

    alone = difference(columns()["stability"], rows([0]), "a", "b")
    assert alone.value == pytest.approx(0.3)
    assert np.isnan([alone.low, alone.high]).all()
    assert not alone.excludes_zero
    several = difference(columns()["stability"], rows([0, 1, 2]), "a", "b")  # differences 0.30, 0.32, 0.34
    assert several.high - several.value == pytest.approx(t_quantile(2) * 0.02 / np.sqrt(3))


def test_the_variance_of_two_rows_is_that_of_their_differences():
    first, second = {0: 3.0, 1: 5.0, 2: 4.5}, {0: 1.0, 1: 2.0, 2: 4.0}
    found = variance_of_differences([first, second])
    assert found.variance == pytest.approx(np.var([2.0, 3.0, 0.5], ddof=1))
    assert found.freedom == 2


def test_the_variance_of_several_rows_is_the_mean_over_all_pairs_and_does_not_depend_on_their_order():
    values = np.random.default_rng(0).normal(size=(5, 3))
    rows = [dict(enumerate(row)) for row in values]
    pairs = [np.var(values[i] - values[j], ddof=1) for i in range(5) for j in range(i)]
    assert variance_of_differences(rows).variance == pytest.approx(np.mean(pairs))
    assert variance_of_differences(rows[::-1]).variance == pytest.approx(np.mean(pairs))
    assert variance_of_differences(rows).freedom == 4 * 2


def test_what_a_seed_brings_to_all_rows_is_no_variance_of_differences():
    rows = [{seed: row + 10.0 * seed for seed in range(3)} for row in range(4)]
    assert variance_of_differences(rows).variance == pytest.approx(0, abs=1e-20)


def test_rows_with_one_seed_or_without_a_score_tell_nothing_of_seeds():
    rows = [{0: 3.0, 1: 5.0}, {0: 1.0, 1: 2.0}]
    assert variance_of_differences([*rows, {0: 9.0}, {0: np.nan, 1: 2.0}]) == variance_of_differences(rows)
    assert variance_of_differences([{0: 1.0}, {0: 2.0}]).freedom == 0
    assert variance_of_differences([]).freedom == 0
    assert variance_of_differences([{0: 1.0, 1: 2.0}, {2: 1.0, 3: 5.0}]).freedom == 0  # no seed in common


def test_seeds_that_only_some_rows_have_count_as_far_as_rows_share_them():
    rows = [{0: 1.0, 1: 2.0, 2: 4.0}, {0: 0.0, 1: 3.0, 2: 3.0}, {1: 1.0, 2: 5.0}]
    assert variance_of_differences(rows).freedom == 8 - (3 + 3 - 1)


def test_the_interval_of_a_mean_is_made_of_both_variances():
    rows = study()
    found = difference(COLUMNS["corrupted"], rows, "row 1", "row 0")
    apart = np.mean([a.right["fog/1"] - b.right["fog/1"] for a, b in zip(rows["row 1"], rows["row 0"], strict=True)], 0)
    images = Estimate(100 * apart.mean(), 100 * apart.std(ddof=1) / np.sqrt(150), 149)
    seeds = variance_of_differences([{r.seed: 100 * r.right["fog/1"].mean() for r in row} for row in rows.values()])
    pairs = 2 / 152 * 100**2 / 152  # Bonett and Price: a win and a loss more, which hardly matter here
    variance = images.error**2 + seeds.variance / 3
    assert found.value == pytest.approx(images.value)
    assert (found.high - found.low) / 2 == pytest.approx(1.98 * np.sqrt(variance + pairs), rel=0.03)
    assert interval_of(with_seed_variance(images, seeds, count=3), scale="plain", images=150).high < found.high


def test_more_than_two_hundred_images_are_left_out_in_groups_and_say_about_the_same():
    rows = study(images=1000, seeds=(0,))
    found = difference(columns()["stability"], rows, "row 1", "row 0")
    apart = rows["row 1"][0].measures["stability"] - rows["row 0"][0].measures["stability"]
    assert (found.high - found.low) / 2 == pytest.approx(1.98 * apart.std(ddof=1) / np.sqrt(1000), rel=0.2)


def test_a_row_with_one_seed_has_the_seed_variance_of_the_others():
    rows = study()
    alone = {**rows, "row 3": rows["row 3"][:1]}
    assert pooled_rows(alone) == 3
    of_seeds = seed_variance(columns()["stability"], alone)
    assert of_seeds.freedom == 4
    wide = difference(columns()["stability"], alone, "row 3", "row 0")
    images_only = difference(columns()["stability"], {name: runs[:1] for name, runs in rows.items()}, "row 3", "row 0")
    assert wide.value == images_only.value
    assert (wide.high - wide.low) / 2 > (images_only.high - images_only.low) / 2
    assert pooled_rows({name: runs[:1] for name, runs in rows.items()}) == 0


def test_rows_that_answer_alike_are_not_known_to_be_equal():
    rows = {row: [run(0, np.zeros(20), [np.zeros(20)])] for row in ("a", "b")}
    for name in ("clean", "corrupted"):
        found = difference(COLUMNS[name], rows, "a", "b")
        assert (found.value, found.low) == (0, pytest.approx(-13.45, abs=0.01))  # t(19) · √(2/22)/√22 of 20 images
        assert found.high == -found.low


def test_a_replicate_without_a_score_leaves_no_interval_instead_of_a_wrong_one():
    rows = {row: [run(0, [1] + [0] * 9, [np.zeros(10)])] for row in ("a", "b")}  # retention without the first image
    found = difference(COLUMNS["retention"], rows, "a", "b")
    assert found.value == 0
    assert np.isnan([found.low, found.high]).all()


def simulated(rng, *, rows, seeds, images=400, seed_sd=2.0, image_se=0.5):
    """A study of rows that are equal in truth; a difference has ``seed_sd`` between seeds, ``image_se`` over images."""
    hard = rng.normal(size=(rows, 1, images)) * image_se * np.sqrt(images / 2)  # alike in all seeds
    level = rng.normal(size=(rows, seeds, 1)) * seed_sd / np.sqrt(2)
    return {
        f"row {row}": [
            RunResult("", seed, {}, {"stability": hard[row, 0] + level[row, seed]}, {}) for seed in range(seeds)
        ]
        for row in range(rows)
    }


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_interval_covers_the_truth_when_six_rows_tell_the_seed_variance(seeds):
    rng, column = np.random.default_rng(0), columns()["stability"]
    studies = [simulated(rng, rows=6, seeds=seeds) for _ in range(400)]
    covered = [not difference(column, each, "row 1", "row 0").excludes_zero for each in studies]
    assert 0.92 <= np.mean(covered) <= 0.985
