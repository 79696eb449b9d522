"""Data set section of the report: tables, figures, comparisons and published scores."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.metrics.comparison import Comparison
from holdfast.metrics.intervals import over_seeds
from holdfast.metrics.summary import Score
from holdfast.reporting.comparable import DataSet, Entry, comparisons, describe_data, warnings_of
from holdfast.reporting.figures.charts import ReportFigure, forest, svg_picture
from holdfast.reporting.figures.severity import data_figures
from holdfast.reporting.formatting import NOT_MEASURED, kind_label, number
from holdfast.reporting.sections.examples import ShownExample, examples
from holdfast.reporting.sections.heat_maps import HeatMap, heat_maps
from holdfast.reporting.sections.key_findings import Sentence, sentences
from holdfast.reporting.sections.published_tables import PaperTable, paper_table
from holdfast.reporting.sections.score_tables import (
    DifferenceRow,
    Table,
    difference_row,
    headline_table,
    kinds_table,
    more_table,
    shown_differences,
)
from holdfast.tasks import task_named


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


@dataclass(frozen=True)
class Compared:
    """Comparison of a model with the baseline: a figure and a table."""

    entry: Entry
    figure: ReportFigure
    rows: Sequence[DifferenceRow]


@dataclass(frozen=True)
class DataSetSection:
    """Contents of the section of one data set."""

    anchor: str
    title: str
    description: str
    warnings: Sequence[str]
    headline: Table
    more: Table
    seeds: SeedTable | None
    figures: Sequence[ReportFigure]
    baseline: str
    comparisons: Sequence[Compared]
    kinds: Table | None
    heat_maps: Sequence[HeatMap]
    examples: Sequence[ShownExample]
    examples_note: str
    papers: PaperTable | None
    on_the_fly: bool
    sentences: Sequence[Sentence]


def part_of(data: DataSet, *, number: int, title: str) -> DataSetSection:
    """Build the section of one data set."""
    anchor = f"data-{number + 1}"
    against = comparisons(data)
    return DataSetSection(
        anchor=anchor,
        title=title,
        description=describe_data(data),
        warnings=warnings_of(data),
        headline=headline_table(data),
        more=more_table(data),
        seeds=seed_table(data),
        figures=data_figures(data, anchor=anchor),
        baseline=data.baseline.name,
        comparisons=list(_compare_entries(against, baseline=data.baseline.name, anchor=anchor)),
        kinds=kinds_table(data),
        heat_maps=heat_maps(data),
        examples=examples(data),
        examples_note=getattr(task_named(data.task).drawing, "note", ""),
        papers=paper_table(data),
        on_the_fly=data.protocol == "on-the-fly",
        sentences=sentences(data, against),
    )


def _compare_entries(against: Sequence[tuple[Entry, Comparison]], *, baseline: str, anchor: str) -> Iterator[Compared]:
    for position, (entry, comparison) in enumerate(against):
        differences = shown_differences(comparison)
        rows = [(kind_label(difference.label), difference.interval) for difference in differences]
        if rows:
            picture = svg_picture(
                lambda rows=rows: forest(rows),  # type: ignore[misc]
                name=f"{anchor}-against-{position + 1}",
                title=f"{entry.name} vs. {baseline} by corruption",
            )
            yield Compared(entry, picture, [difference_row(difference) for difference in differences])
