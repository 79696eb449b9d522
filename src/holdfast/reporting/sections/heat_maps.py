"""Heat maps of the score by corruption and severity, one per model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np

from holdfast.corruptions.severities import PUBLISHED, SEVERITIES, table_group
from holdfast.metrics.replicates import replicate_cells, used_images
from holdfast.metrics.scoring.registry import scoring_of
from holdfast.reporting.comparable import DataSet, Entry
from holdfast.reporting.formatting import NOT_MEASURED, kind_label, number, title_of


@dataclass(frozen=True)
class HeatCell:
    """One cell: its text, and its error in percent, which sets the colour."""

    name: str
    text: str
    error: float | None


@dataclass(frozen=True)
class HeatRow:
    """One row: the severities of a corruption."""

    label: str
    cells: Sequence[HeatCell]
    mean: str
    kind: str = ""


@dataclass(frozen=True)
class HeatGroup:
    """Corruptions of one group: noise, blur, weather, digital, extra or registered."""

    name: str
    rows: Sequence[HeatRow]


@dataclass(frozen=True)
class HeatMap:
    """One model's score by corruption and severity, mean over the images."""

    entry: Entry
    severities: Sequence[int]
    groups: Sequence[HeatGroup]
    clean: HeatCell | None = None

    @property
    def words(self) -> str:
        """Name of the score in the cells."""
        scoring = scoring_of(self.entry.records.task)
        whole = scoring.cell_words
        return f"{title_of(whole)} of the whole cell, percent" if whole else scoring.per_image


def heat_maps(data: DataSet) -> list[HeatMap]:
    """Heat maps of the shown models that were evaluated on corruptions."""
    maps = [HeatMap(entry, SEVERITIES, list(_heat_groups(entry)), _clean(entry)) for entry in data.shown_models]
    return [heat for heat in maps if heat.groups]


def _clean(entry: Entry) -> HeatCell | None:
    score = entry.summary.scores.get("clean")
    return _heat_cell({"clean": score.value}, "clean") if score is not None else None


def cell_scores(entry: Entry) -> dict[str, float]:
    """Score of every corrupted cell in percent: the task's score of a whole cell, else the mean over images."""
    cells = {name: cell for name, cell in entry.records.cells.items() if cell.spec.family == "corruption" and len(cell)}
    known_scores = scoring_of(entry.records.task).cell_scores(entry.records.header)
    if not cells or not known_scores:
        return {name: 100 * cell.accuracy for name, cell in cells.items()}
    used, score = used_images(cells, images="own"), next(iter(known_scores.values()))
    replicates = replicate_cells(cells, used, used.groups())  # with groups, because the tables need the same
    known = {name for name in cells if replicates.keys() >= set(score.reads(name))}  # AP needs objects
    return {name: 100 * float(score.of(replicates, name)[0]) if name in known else float("nan") for name in cells}


def _heat_groups(entry: Entry) -> Iterable[HeatGroup]:
    there = dict.fromkeys(cell.spec.kind for cell in entry.records.cells.values() if cell.spec.family == "corruption")
    shown = [*(kind for kind in PUBLISHED if kind in there), *(kind for kind in there if kind not in PUBLISHED)]
    scores = cell_scores(entry)
    for group in dict.fromkeys(map(table_group, shown)):
        yield HeatGroup(group, [_heat_row(entry, kind, scores) for kind in shown if table_group(kind) == group])


def _heat_row(entry: Entry, kind: str, scores: Mapping[str, float]) -> HeatRow:
    cells = [_heat_cell(scores, f"{kind}/{severity}") for severity in SEVERITIES]
    known = [scores[cell.name] for cell in cells if cell.error is not None]
    recorded = next(entry.records.cells[cell.name] for cell in cells if cell.name in entry.records.cells)
    label = kind_label(str(recorded.header.get("kind", kind)))  # frost(procedural) is not the published frost
    return HeatRow(label, cells, number(float(np.mean(known))) if len(known) == len(cells) else NOT_MEASURED, kind)


def _heat_cell(scores: Mapping[str, float], name: str) -> HeatCell:
    if name not in scores or isnan(scores[name]):
        return HeatCell(name, NOT_MEASURED, None)
    return HeatCell(name, number(scores[name], digits=0), round(100 - scores[name], 1))
