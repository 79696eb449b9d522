"""Tables of scores with intervals, and of differences between models."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from holdfast.metrics.scoring.registry import scoring_of
from holdfast.metrics.summary import Score
from holdfast.reporting.comparable import DataSet, Entry
from holdfast.reporting.formatting import NOT_MEASURED, number, span
from holdfast.reporting.quantities import is_headline, scores_of

KEPT = ("retention", "rpc", "rpc_fan")  # endings of scores relative to the clean score
AT_CHANCE = "the clean score may be that of guessing, so it is not compared"


@dataclass(frozen=True)
class ScoreCell:
    """One number of a score table."""

    score: str
    text: str
    value: float | None = None
    interval: str = ""
    best: bool = False
    note: str = ""
    unranked: bool = False


@dataclass(frozen=True)
class ScoreRow:
    """One row of a table."""

    entry: Any  # has a name, a colour and a view
    cells: Sequence[Any]
    group: str = ""


@dataclass(frozen=True)
class Table:
    """Columns (scores, or titles) and rows."""

    columns: Sequence[Any]
    rows: Sequence[ScoreRow]

    @property
    def groups(self) -> list[tuple[str, list[ScoreRow]]]:
        """Rows by group, in the order in which groups first appear."""
        found: dict[str, list[ScoreRow]] = {}
        for row in self.rows:
            found.setdefault(row.group, []).append(row)
        return list(found.items())


def headline_table(data: DataSet) -> Table:
    """Table of the headline scores."""
    return _score_table(data, [score for score in scores_of(data.entries) if is_headline(score, data.task)])


def more_table(data: DataSet) -> Table:
    """Table of all other scores that are not per corruption."""
    scores = scores_of(data.entries)
    return _score_table(data, [s for s in scores if not is_headline(s, data.task) and not s.table])


def all_table(data: DataSet) -> Table:
    """Table of all scores that are not per corruption, headline scores first."""
    scores = [score for score in scores_of(data.entries) if is_headline(score, data.task) or not score.table]
    return _score_table(data, sorted(scores, key=lambda score: not is_headline(score, data.task)))


def meanings(sets: Iterable[DataSet]) -> list[Score]:
    """One score per name on the page, for its definition."""
    found: dict[str, Score] = {}
    for data in sets:
        for score in scores_of(data.entries):
            if not score.table:
                found.setdefault(score.name, score)
    return list(found.values())


def _score_table(data: DataSet, columns: Sequence[Score], entries: Sequence[Entry] | None = None) -> Table:
    shown = data.entries if entries is None else entries
    best = {column.name: _best(column, shown) for column in columns}
    rows = [
        ScoreRow(entry, [_cell(entry, column.name, best[column.name]) for column in columns], data.groups[entry])
        for entry in shown
    ]
    return Table(columns, rows)


def kinds_table(data: DataSet) -> Table | None:
    """Every shown model on clean images and every corruption, mean over severities; None without corruptions."""
    kinds = [score for score in scores_of(data.shown_models) if score.table and score.family == "corruption"]
    first = [score for score in kinds if score.table == kinds[0].table and not score.partial]
    clean = [score for score in scores_of(data.shown_models) if score.name == "clean"]
    return _score_table(data, [*clean, *first], data.entries if data.many else data.shown_models) if first else None


def _best(column: Score, entries: Sequence[Entry]) -> float | None:
    """The best rounded value of a column; None with fewer than two values."""
    able = [
        entry for entry in entries if not (column.name.removesuffix("_partial").endswith(KEPT) and at_chance(entry))
    ]
    values = [entry.summary.scores[column.name].value for entry in able if column.name in entry.summary]
    known = [round(value, _digits(column.unit)) for value in values if not isnan(value)]
    if len(known) < 2 or not column.better:
        return None
    return max(known) if column.better == "high" else min(known)


def _cell(entry: Entry, name: str, best: float | None) -> ScoreCell:
    if name not in entry.summary:
        return ScoreCell(name, NOT_MEASURED)
    score = entry.summary.scores[name]
    digits = _digits(score.unit)
    bounds = "" if isnan(score.low) else span(score.low, score.high, digits=digits)
    missing = f"missing: {', '.join(score.missing)}" if score.missing else ""
    note = "; ".join(part for part in (score.note, missing) if part)
    unranked = name.removesuffix("_partial").endswith(KEPT) and at_chance(entry)
    note = "; ".join(filter(None, (note, AT_CHANCE if unranked else "")))
    is_best = not unranked and not isnan(score.value) and round(score.value, digits) == best
    text = number(score.value, digits=digits)
    return ScoreCell(name, text, score.value, bounds, best=is_best, note=note, unranked=unranked)


def at_chance(entry: Entry) -> bool:
    """Whether the clean score may be that of guessing, so that what is retained of it says nothing."""
    clean, classes = entry.summary.scores.get("clean"), entry.records.header.get("classes")
    count = classes if isinstance(classes, int) else len(classes or ())
    if clean is None or isnan(clean.low):
        return False
    return clean.low <= (100 / count if scoring_of(entry.records.task).one_class and count else 0.0)


def _digits(unit: str) -> int:
    return 1 if unit.startswith("%") else 3
