"""``Scoring``: what the records of a task hold, and the scores that follow from them. Imports no torch.

Reports, gates and studies read records with this part of a task alone. A task's scoring subclasses `Scoring` and
is found by the task's name, see `holdfast.metrics.scoring.registry`; what it does not say has the default here.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from holdfast.cells import CellSpec
from holdfast.metrics.jackknife import Groups
from holdfast.metrics.scoring.base import CellScore, Key, Reference, ScoreDefinition
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


class Scoring(Protocol):
    """Recorded fields of a task, and its scores from them.

    Attributes:
        fields: names and types of the recorded fields of an image.
        headline: names of the scores in a report's first table.
        per_image: description of the mean of `right` over the images, for reports.
        cell_words: name of the score of a cell in heat maps and curves; empty for accuracy.
        one_class: whether an image has one class, and a prediction is right or wrong.
        curve_kinds: the corruptions over which curves by severity average; empty for those that were measured.
        running: score of the progress line, if it follows from sums over images.
        whole_sets: whether scores belong to whole sets, so that studies store `set_figures`.
        first_images: images that every cell gets first if an evaluation stops early; 0 for the usual number.
        replicates_words: title of the progress line of `replicates`, if they take long.
    """

    fields: Mapping[str, Any]
    headline: Sequence[str] = ("clean", "retention")
    per_image: str = "Percent of the images that are right"
    cell_words: str = ""
    one_class: bool = False
    curve_kinds: Sequence[str] = ()
    running: RunningScore | None = None
    whole_sets: bool = False
    first_images: int = 0
    replicates_words: str = ""

    def right(self, cell: CellRecord) -> np.ndarray:
        """Per-image score, float64 (N,), from 0 to 1."""
        ...

    def formulas(
        self,
        cells: Sequence[CellSpec],
        *,
        columns: Collection[Key],
        header: Mapping[str, Any],
        reference: Reference | None,
    ) -> list[ScoreDefinition]:
        """Score definitions for these cells, in the order of tables."""
        ...

    def columns(self, cell: CellRecord) -> dict[str, np.ndarray]:
        """Per-image quantities that scores average, by name, each (N,); by default `right`."""
        return {"right": self.right(cell)}

    def rows(self, cell: CellRecord) -> dict[str, np.ndarray]:
        """Columns of a table with a row per image, or per frame; first ``id``."""
        return {"id": cell.ids, "right": self.right(cell)}

    def remark(self, cell: CellRecord) -> str:
        """Note that accompanies an attack's score; mostly empty."""
        return ""

    def cell_scores(self, header: Mapping[str, Any]) -> Mapping[str, CellScore]:
        """Scores of a cell, the first for heat maps and curves; without any, reports show the mean of `right`."""
        return {}

    def foreseen_columns(self, cells: Sequence[CellSpec]) -> Collection[Key]:
        """Quantities that `replicates` will return for these cells, before there are records."""
        return ()

    def set_figures(self, cells: Mapping[str, CellRecord]) -> dict[str, np.ndarray]:
        """Further values of whole sets, for studies."""
        return {}

    def replicates(self, cell: CellRecord, groups: Groups | None) -> dict[str, np.ndarray]:
        """Quantities that are no means over images, (1 + groups,), or (1,) without groups."""
        return {}

    def interval_note(self, cells: Mapping[str, CellRecord]) -> str:
        """A line on the limits of the intervals; mostly empty."""
        return ""
