"""Order of images in every cell for evaluations that stop early: balanced, seeded, and the same for every model.

A cell takes the images in an order of its own. Cut off anywhere, the orders of all cells form a balanced design: every
cell has the same number of images, no image is in two cells before every image is in one, in three before every image
is in two, and so on. Images that are hard in one cell are hard in others, so many images in one cell each say more
about a mean over cells than few images in all of them. Complete orders are the complete grid.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from holdfast.rng import number


def stratified_order(ids: Sequence[str], strata: NDArray[np.int64]) -> NDArray[np.int64]:
    """Order the images by a digest of their ids so that any first few are a stratified subset."""
    order = np.argsort(np.array([number(name) for name in ids], dtype=np.uint64), kind="stable")
    quantiles = np.empty(len(ids))
    # (rank + ½) / n is the quantile of an image within its stratum: sorting all images by it interleaves the strata in
    # proportion to their sizes, so that any prefix is stratified
    for stratum in np.unique(strata):
        members = order[strata[order] == stratum]
        quantiles[members] = (np.arange(len(members)) + 0.5) / len(members)
    return order[np.argsort(quantiles[order], kind="stable")]


def cell_orders(order: NDArray[np.int64], cells: int, *, seed: int = 0) -> list[NDArray[np.int64]]:
    """Order of the images in each of some cells, from an order of all images such as :func:`stratified_order`.

    The images are dealt to the cells, each block of ``cells`` images in an order of its own, so that no cell gets
    images of particular classes only. A cell first takes the images dealt to it, then those dealt to another cell, and
    so on; at any time all cells take from different ones (a Latin square).
    """
    rng = np.random.default_rng([seed, cells])
    blocks = -(-len(order) // cells)
    dealt = rng.permuted(np.tile(np.arange(cells), (blocks, 1)), axis=1).ravel()[: len(order)]
    hands = [order[dealt == cell] for cell in range(cells)]
    turns = rng.permutation(cells)
    return [np.concatenate([hands[(cell + turn) % cells] for turn in turns]) for cell in range(cells)]
