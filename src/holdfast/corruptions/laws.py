"""Noise on bytes, drawn exactly by law: each noise is a table of how likely each result is, sampled by inversion.

A byte has 256 values, so the law of ``trunc(255·clip(u + noise))`` is a small table. A guide table answers almost
every 16-bit draw at once; the few that fall on a boundary of the law are decided with 53 further bits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

UNDECIDED = np.int16(-(2**15))


@dataclass(frozen=True)
class Law:
    """Cumulative probabilities of the outcomes ``first, first + 1, …``, one row per condition, and a guide table."""

    cumulative: NDArray[np.float64]  # rows × outcomes
    first: int
    guide_bits: int
    guide: NDArray[np.int16]  # rows · 2^guide_bits, outcome or UNDECIDED
    keys: NDArray[np.float64]  # row + cumulative, one sorted list, so that one search serves all rows

    def sample(
        self,
        words: NDArray[np.uint16],
        rows: NDArray[np.uint8] | None,
        refine: Callable[[NDArray[np.intp]], NDArray[np.float64]],
    ) -> NDArray[np.int16]:
        """One outcome per 16-bit word, all arrays flat.

        ``rows`` says which row of the law each follows (None: there is but one); ``refine`` is asked for uniform values
        in [0, 1) for the sorted places that 16 bits leave undecided.
        """
        index = (words >> np.uint16(16 - self.guide_bits)).astype(np.intp)
        if rows is not None:
            index += rows.astype(np.intp) << self.guide_bits
        outcome = self.guide.take(index, mode="clip")
        undecided = np.flatnonzero(outcome == UNDECIDED)
        if undecided.size:
            exact = (words[undecided] + refine(undecided)) / 65536
            outcome[undecided] = self._invert(exact, 0 if rows is None else rows[undecided].astype(np.intp))
        return outcome

    def _invert(self, uniform: NDArray[np.float64], rows: NDArray[np.intp] | int) -> NDArray[Any]:
        outcomes = self.cumulative.shape[1]
        position = np.searchsorted(self.keys, uniform + rows, side="right") - rows * outcomes
        return np.minimum(position, outcomes - 1) + self.first


def law(cumulative: NDArray[np.float64], *, first: int, guide_bits: int) -> Law:
    """Build the guide table: a bin of draws that lies wholly within one outcome is answered by it."""
    size = 1 << guide_bits
    edges = np.arange(size + 1) / size
    guide = np.empty((len(cumulative), size), np.int16)
    for row, steps in zip(guide, cumulative, strict=True):
        place = np.searchsorted(steps, edges, side="right")
        surely = np.searchsorted(steps, edges[1:], side="left") == place[:-1]
        row[:] = np.where(surely, np.minimum(place[:-1], len(steps) - 1) + first, UNDECIDED)
    keys = (cumulative + np.arange(len(cumulative))[:, None]).ravel()
    return Law(cumulative, first, guide_bits, guide.ravel(), keys)
