"""Data set section of the report: tables, figures, comparisons and published scores."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.metrics.comparison import compare_all
from holdfast.metrics.intervals import over_seeds
from holdfast.reporting.comparable import DataSet, Entry, describe_data, warnings_of
from holdfast.reporting.figures.charts import ReportFigure
from holdfast.reporting.figures.severity import data_figures
from holdfast.reporting.figures.shift_line import shift_line_figure
from holdfast.reporting.formatting import NOT_MEASURED, number
from holdfast.reporting.quantities import words_of
from holdfast.reporting.sections.decision import AgainstBaseline, Decision, Pairs, against_baseline, decide
from holdfast.reporting.sections.examples import ShownExample, examples
from holdfast.reporting.sections.forests import Compared, compared_by_kind
from holdfast.reporting.sections.heat_maps import HeatMap, heat_maps
from holdfast.reporting.sections.key_findings import Sentence, against, alone
from holdfast.reporting.sections.pairwise import Matrix, matrices
from holdfast.reporting.sections.published_tables import paper_table
from holdfast.reporting.sections.score_tables import headline_table, kinds_table, more_table
from holdfast.reporting.sections.what_next import Step, what_next
from holdfast.reporting.table import Column, Row, Table
from holdfast.tasks import task_named

MOST_BASELINES = 8  # models of which each can be the baseline; of more, the first one is


def seed_table(data: DataSet) -> Table | None:
    """Build a row for every recipe that was trained with at least two seeds: mean ± sample standard deviation."""
    columns = headline_table(data).columns
    rows = [_row(entries, columns) for entries in data.seed_groups.values() if _seeds(entries) > 1]
    return Table("Variation over seeds", columns, rows, head="runs") if rows else None


def _seeds(entries: Sequence[Entry]) -> int:
    return len({str(entry.run.recipe.get("seed")) for entry in entries})


def _row(entries: Sequence[Entry], columns: Sequence[Column]) -> Row:
    names = ", ".join(entry.name for entry in entries)
    return Row(names, [_format_spread(entries, column.score.name) for column in columns])


def _format_spread(entries: Sequence[Entry], name: str) -> str:
    if not all(name in entry.summary for entry in entries):
        return NOT_MEASURED
    spread = over_seeds([entry.summary[name].value for entry in entries])
    return f"{number(spread.mean)} ± {number(spread.std)}"


@dataclass(frozen=True)
class Baseline:
    """What is said against one baseline: sentences, and differences by kind."""

    place: int
    entry: Entry
    table: AgainstBaseline
    sentences: Sequence[Sentence]
    by_kind: Sequence[Compared]


@dataclass(frozen=True)
class DataSetSection:
    """Contents of the section of one data set."""

    anchor: str
    title: str
    description: str
    summary: Sentence
    decision: Decision | None
    next: Sequence[Step]
    warnings: Sequence[str]
    headline: Table
    more: Table
    matrices: Sequence[Matrix]
    baselines: Sequence[Baseline]
    seeds: Table | None
    figures: Sequence[ReportFigure]
    words: str
    kinds: Table | None
    heat_maps: Sequence[HeatMap]
    examples: Sequence[ShownExample]
    examples_note: str
    papers: Table | None
    on_the_fly: bool


def part_of(data: DataSet, *, number: int, title: str) -> DataSetSection:
    """Build the section of one data set."""
    anchor = f"data-{number + 1}"
    models = data.shown_models
    pairs = compare_all([entry.records for entry in models])
    chosen = len(models) if len(models) <= MOST_BASELINES else min(1, len(models))
    baselines = [_baseline(data, pairs, place, anchor=anchor) for place in range(chosen)] if pairs else []
    decision, shown = decide(data, pairs, [each.table for each in baselines]), examples(data)
    return DataSetSection(
        anchor=anchor,
        title=title,
        description=describe_data(data),
        summary=alone(decision.entry if decision is not None else data.baseline, data, title),
        decision=decision,
        next=what_next(data, pairs, decision, examples=bool(shown)),
        warnings=warnings_of(data),
        headline=headline_table(data),
        more=more_table(data),
        matrices=matrices(data, pairs),
        baselines=[each for each in baselines if each.table.candidates or each.by_kind],
        seeds=seed_table(data),
        figures=[*data_figures(data, anchor=anchor), *shift_line_figure(data, anchor=anchor)],
        words=words_of(data.task),
        kinds=kinds_table(data),
        heat_maps=heat_maps(data),
        examples=shown,
        examples_note=getattr(task_named(data.task).drawing, "note", ""),
        papers=paper_table(data),
        on_the_fly=data.protocol == "on-the-fly",
    )


def _baseline(data: DataSet, pairs: Pairs, place: int, *, anchor: str) -> Baseline:
    table = against_baseline(data, pairs, place)
    by_kind = compared_by_kind(data, pairs, place, anchor=anchor)
    return Baseline(place, data.shown_models[place], table, against(table, data, pairs), by_kind)
