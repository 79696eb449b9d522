"""``Order``: which images every cell gets, so that any beginning of an evaluation is balanced over images and cells.

An image that is hard in fog is hard in snow, so all cells of one image say little more than one of them. The order
goes through all images before it uses one again, and gives each to another cell: of N images and K cells, step t is
the image t mod N in the cell (t + ⌊t / lcm(N, K)⌋) mod K. Over N·K steps every image meets every cell once, and every K
steps contain every cell once. Depends on ids, classes and seed, never on the model, so that models stay paired.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np
from numpy.typing import NDArray

from holdfast import rng

Rows = NDArray[np.int64]
FIRST_IMAGES = 8  # per cell before anything is judged
GROWTH = 1.1  # of the number of images per cell from round to round, so that there are few hundred rounds at most


@dataclass(frozen=True, eq=False)
class Order:
    """Order of work on the pairs of images and cells.

    Attributes:
        images: rows of all images, stratified by class, see `stratified_order`.
        cells: number of cells that share the images.
    """

    images: Rows
    cells: int

    def take(self, cell: int, start: int, stop: int) -> Rows:
        """The images of one cell from number ``start`` to before ``stop``; no image twice."""
        parts, before = [np.empty(0, np.int64)], 0
        for lap in range(self.cells):
            begin, end = self._column((cell - self._shift(lap)) % self.cells)
            first, last = max(start - before, 0), min(stop - before, end - begin)
            if first < last:
                parts.append(self.images[begin + first : begin + last])
            before += end - begin
            if before >= stop:
                break
        return np.concatenate(parts)

    def _shift(self, lap: int) -> int:
        """By how many cells the images of a lap have moved on since the first."""
        period = self.cells // gcd(len(self.images), self.cells)  # laps until N·lap mod K would repeat
        return (lap * len(self.images) + lap // period) % self.cells

    def _column(self, number: int) -> tuple[int, int]:
        """The images of every K-th step: consecutive ones, so that each cell's are stratified, too."""
        size, more = divmod(len(self.images), self.cells)
        begin = number * size + min(number, more)
        return begin, begin + size + (number < more)


def depths(images: int, *, first: int = FIRST_IMAGES) -> Iterator[int]:
    """Images per cell after each round: ``first``, then about a tenth more each time, at last all."""
    depth = min(first, images)
    while depth < images:
        yield depth
        depth = min(images, max(depth + 2, round(GROWTH * depth)))
    yield images


def stratified_order(ids: Sequence[str], strata: np.ndarray, *, seed: int = 0) -> Rows:
    """Rows in an order, by a digest of the ids, of which every stretch is stratified.

    Strata in several columns are nested, the widest first: few images are spread over domains, then over classes.
    """
    order = np.argsort(
        np.array([rng.number(name, seed) if seed else rng.number(name) for name in ids], dtype=np.uint64), kind="stable"
    )
    for level in reversed(np.atleast_2d(strata.T)):
        order = _interleave(order, level)
    return order


def _interleave(order: Rows, strata: np.ndarray) -> Rows:
    """Spread the strata evenly over an order and keep the order within each."""
    quantiles = np.empty(len(order))
    # (rank + ½) / n is the quantile of an image within its stratum: sorting all images by it interleaves the strata in
    # proportion to their sizes, so that any prefix is stratified
    for stratum in np.unique(strata):
        members = order[strata[order] == stratum]
        quantiles[members] = (np.arange(len(members)) + 0.5) / len(members)
    return order[np.argsort(quantiles[order], kind="stable")]
