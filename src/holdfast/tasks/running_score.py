"""The score that people watch while an evaluation runs: of the images so far, under its own name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.records.records import CellRecord


@dataclass(frozen=True)
class RunningScore:
    """A score that follows from sums over images.

    Attributes:
        word: its name behind ``clean`` and ``corrupted``; empty for accuracy.
        sums: what a cell's images add up to.
        score: from 0 to 1, of such sums.
    """

    word: str
    sums: Callable[[CellRecord], np.ndarray]
    score: Callable[[np.ndarray], Any]
