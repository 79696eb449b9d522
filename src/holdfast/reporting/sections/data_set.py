"""Everything about one data set: its tables, figures, comparisons, and what the papers print."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.metrics.comparison import Comparison
from holdfast.reporting.entries import DataSet, Entry, comparisons, described, warnings_of
from holdfast.reporting.figures.charts import forest
from holdfast.reporting.figures.of_data import data_figures
from holdfast.reporting.figures.pictures import Picture, svg_picture
from holdfast.reporting.sections.examples import ShownExample, examples
from holdfast.reporting.sections.heat_maps import HeatMap, heat_maps
from holdfast.reporting.sections.papers import PaperTable, paper_table
from holdfast.reporting.sections.seeds import SeedTable, seed_table
from holdfast.reporting.sections.sentences import Sentence, sentences
from holdfast.reporting.sections.tables import (
    DifferenceRow,
    Table,
    compared,
    difference_row,
    headline_table,
    kinds_table,
    more_table,
)
from holdfast.reporting.text import kind_label


@dataclass(frozen=True)
class Compared:
    """One model against the first: a figure and the same numbers as a table."""

    entry: Entry
    figure: Picture
    rows: Sequence[DifferenceRow]


@dataclass(frozen=True)
class Part:
    """Everything about one data set."""

    anchor: str
    title: str
    description: str
    warnings: Sequence[str]
    headline: Table
    more: Table
    seeds: SeedTable | None
    figures: Sequence[Picture]
    baseline: str
    comparisons: Sequence[Compared]
    kinds: Table | None
    heat_maps: Sequence[HeatMap]
    examples: Sequence[ShownExample]
    examples_note: str
    papers: PaperTable | None
    on_the_fly: bool
    sentences: Sequence[Sentence]


def part_of(data: DataSet, *, number: int, title: str) -> Part:
    """Everything about one data set."""
    anchor = f"data-{number + 1}"
    against = comparisons(data)
    return Part(
        anchor=anchor,
        title=title,
        description=described(data),
        warnings=warnings_of(data),
        headline=headline_table(data),
        more=more_table(data),
        seeds=seed_table(data),
        figures=data_figures(data, anchor=anchor),
        baseline=data.baseline.name,
        comparisons=list(_compared(against, baseline=data.baseline.name, anchor=anchor)),
        kinds=kinds_table(data),
        heat_maps=heat_maps(data),
        examples=examples(data),
        examples_note=", wrong pixels below" if data.task == "segmentation" else "",
        papers=paper_table(data),
        on_the_fly=data.protocol == "on-the-fly",
        sentences=sentences(data, against),
    )


def _compared(against: Sequence[tuple[Entry, Comparison]], *, baseline: str, anchor: str) -> Iterator[Compared]:
    for number, (entry, comparison) in enumerate(against):
        differences = compared(comparison)
        rows = [(kind_label(difference.label), difference.interval) for difference in differences]
        if rows:
            picture = svg_picture(
                lambda rows=rows: forest(rows),  # type: ignore[misc]
                name=f"{anchor}-against-{number + 1}",
                title=f"{entry.name} against {baseline}, kind by kind",
            )
            yield Compared(entry, picture, [difference_row(difference) for difference in differences])
