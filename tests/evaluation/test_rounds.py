"""The order of images in every cell of an evaluation that stops early."""

import numpy as np
import pytest

from holdfast.evaluation.plan import limit_rows
from holdfast.evaluation.rounds import cell_orders, stratified_order


@pytest.mark.parametrize(("images", "cells"), [(1000, 75), (75, 75), (50, 7), (10, 16), (1, 3), (300, 1)])
def test_complete_orders_are_the_complete_grid(images: int, cells: int) -> None:
    orders = cell_orders(np.arange(images), cells)
    assert len(orders) == cells
    assert all(np.array_equal(np.sort(one), np.arange(images)) for one in orders)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_first_images_of_all_cells_are_a_balanced_design(seed: int) -> None:
    images, cells = 60 * 12, 12
    orders = np.array(cell_orders(np.arange(images), cells, seed=seed))
    for taken in range(1, images + 1, 7):
        uses = np.bincount(orders[:, :taken].ravel(), minlength=images)
        assert uses.max() - uses.min() <= 1


def test_cells_take_other_images_first_where_images_do_not_divide() -> None:
    orders = np.array(cell_orders(np.arange(1000), 75))
    first = orders[:, : 1000 // 75].ravel()
    assert len(np.unique(first)) == len(first)


def test_a_cell_has_images_of_all_classes() -> None:
    """Strata alternate in the order; dealing the images out in turn would give a cell two of ten classes."""
    classes = np.repeat(np.arange(10), 200)
    order = stratified_order([f"{number}" for number in range(2000)], classes)
    fewest = min(len(np.unique(classes[one[:26]])) for one in cell_orders(order, 75))
    assert fewest >= 7


def test_orders_depend_on_ids_and_seed_only() -> None:
    ids, classes = [f"image {number}" for number in range(90)], np.arange(90) % 3
    shuffled = np.random.default_rng(0).permutation(90)
    order, other = stratified_order(ids, classes), stratified_order([ids[i] for i in shuffled], classes[shuffled])
    assert np.array_equal(order, shuffled[other])
    assert np.array_equal(cell_orders(order, 8)[3], cell_orders(order, 8)[3])
    assert not np.array_equal(cell_orders(order, 8, seed=1)[3], cell_orders(order, 8, seed=2)[3])


def test_limit_takes_the_first_images_of_the_order() -> None:
    ids, classes = [f"image {number}" for number in range(90)], np.arange(90) % 3
    assert np.array_equal(limit_rows(ids, classes, 20), np.sort(stratified_order(ids, classes)[:20]))
