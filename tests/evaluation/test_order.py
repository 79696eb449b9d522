"""The order of work: balanced over images and cells wherever it is cut off."""

from itertools import pairwise
from math import lcm

import numpy as np
import pytest

from holdfast.evaluation.order import Order, depths, stratified_order
from holdfast.evaluation.plan import limit_rows

SIZES = [(60, 5), (61, 5), (7, 5), (5, 7), (12, 8), (3, 9), (40, 1)]  # images, cells


@pytest.mark.parametrize(("images", "cells"), SIZES)
def test_the_order_is_the_diagonal_walk_over_all_pairs(images, cells):
    order = Order(np.arange(images), cells)
    columns = np.concatenate([np.arange(images)[cell::cells] for cell in range(cells)])  # step t's image by its place
    images_of_steps = np.empty(images, int)
    images_of_steps[columns] = np.arange(images)
    walk = [[] for _ in range(cells)]
    for step in range(images * cells):
        walk[(step + step // lcm(images, cells)) % cells].append(images_of_steps[step % images])
    for cell in range(cells):
        assert order.take(cell, 0, images).tolist() == walk[cell]
        assert sorted(walk[cell]) == list(range(images))


@pytest.mark.parametrize(("images", "cells"), SIZES)
def test_no_image_is_used_again_before_all_are_used(images, cells):
    order, uses = Order(np.arange(images), cells), np.zeros(images, int)
    for number in range(images):
        for cell in range(cells):
            uses[order.take(cell, number, number + 1)] += 1
        most = -(-(number + 1) * cells // images)
        assert uses.sum() == (number + 1) * cells
        assert uses.max() <= most
        assert uses.min() >= most - 1


def test_stretches_join():
    order = Order(np.random.default_rng(0).permutation(50), 6)
    for cell in range(6):
        parts = [order.take(cell, start, stop) for start, stop in pairwise([0, 8, 9, 31, 50])]
        np.testing.assert_array_equal(np.concatenate(parts), order.take(cell, 0, 50))


def test_every_cell_is_stratified_by_class():
    classes = np.repeat(np.arange(10), [200] * 9 + [100])
    rows = stratified_order([f"image {row}" for row in range(len(classes))], classes)
    order = Order(rows, 15)
    for cell in range(15):
        counts = np.bincount(classes[order.take(cell, 0, 38)], minlength=10)  # two of every larger class in 19
        assert (np.abs(counts[:9] - 4) <= 2).all()
        assert abs(counts[9] - 2) <= 1


def test_a_beginning_of_the_order_is_the_subset_of_limit_and_another_seed_another_order():
    ids, classes = [f"image {row}" for row in range(90)], np.arange(90) % 9
    rows = stratified_order(ids, classes)
    np.testing.assert_array_equal(np.sort(rows[:30]), limit_rows(ids, classes, 30))
    other = stratified_order(ids, classes, seed=1)
    assert (other != rows).any()
    assert sorted(other) == list(range(90))


def test_nested_strata_spread_few_images_over_the_wide_ones_first():
    domains = np.repeat([0, 1, 2], [600, 600, 300])
    classes = np.arange(1500) % 100  # 300 strata of a domain and a class, of which 100 are half as large
    rows = stratified_order(
        [f"image {row}" for row in range(1500)], np.stack([domains, 100 * domains + classes], axis=1)
    )
    assert np.bincount(domains[rows[:50]]).tolist() == [20, 20, 10]
    for domain in range(3):
        assert np.bincount(classes[[row for row in rows[:500] if domains[row] == domain]]).max() <= 2


def test_rounds_grow_by_a_tenth_and_end_with_all_images():
    assert list(depths(50_000))[:6] == [8, 10, 12, 14, 16, 18]
    found = list(depths(50_000))
    assert found[-1] == 50_000
    assert all(1 < after / before <= 1.25 for before, after in pairwise(found))
    assert len(found) < 100
    assert list(depths(5)) == [5]
    assert list(depths(300, first=128)) == [128, 141, 155, 170, 187, 206, 227, 250, 275, 300]
