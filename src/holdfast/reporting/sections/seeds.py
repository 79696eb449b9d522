"""Seed table: variation over training seeds, which intervals over images do not cover."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.metrics.intervals import over_seeds
from holdfast.metrics.summary import Score
from holdfast.reporting.comparable import DataSet, Entry
from holdfast.reporting.formatting import NOT_MEASURED, number
from holdfast.reporting.sections.score_tables import headline_table


@dataclass(frozen=True)
class SeedRow:
    """One recipe: names of its runs, and mean ± sample standard deviation of each score."""

    name: str
    cells: Sequence[str]


@dataclass(frozen=True)
class SeedTable:
    """The headline scores over seeds."""

    columns: Sequence[Score]
    rows: Sequence[SeedRow]


def seed_table(data: DataSet) -> SeedTable | None:
    """Build a row for every recipe that was trained with at least two seeds."""
    groups: dict[str, list[Entry]] = {}
    for entry in data.models:
        if entry.run.recipe:
            same = {key: value for key, value in entry.run.recipe.items() if key != "seed"}
            groups.setdefault(json.dumps(same, sort_keys=True, default=str), []).append(entry)
    columns = list(headline_table(data).columns)
    rows = [_row(entries, columns) for entries in groups.values() if _seeds(entries) > 1]
    return SeedTable(columns, rows) if rows else None


def _seeds(entries: Sequence[Entry]) -> int:
    return len({str(entry.run.recipe.get("seed")) for entry in entries})


def _row(entries: Sequence[Entry], columns: Sequence[Score]) -> SeedRow:
    names = ", ".join(entry.name for entry in entries)
    return SeedRow(names, [_format_spread(entries, column.name) for column in columns])


def _format_spread(entries: Sequence[Entry], name: str) -> str:
    if not all(name in entry.summary for entry in entries):
        return NOT_MEASURED
    spread = over_seeds([entry.summary[name].value for entry in entries])
    return f"{number(spread.mean)} ± {number(spread.std)}"
