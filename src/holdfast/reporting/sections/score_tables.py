"""Tables of scores with intervals."""

from collections.abc import Iterable, Sequence
from math import isnan

from holdfast.metrics.scoring.registry import scoring_of
from holdfast.metrics.summary import Score
from holdfast.reporting.comparable import DataSet, Entry
from holdfast.reporting.quantities import is_headline, scores_of
from holdfast.reporting.table import Cell, Column, Row, Table

KEPT = ("retention", "rpc", "rpc_fan")  # endings of scores relative to the clean score
AT_CHANCE = "the clean score may be that of guessing, so it is not compared"


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


def _score_table(data: DataSet, scores: Sequence[Score], entries: Sequence[Entry] | None = None) -> Table:
    columns = [
        Column(score.label, unit=score.unit, better=score.better, digits=_digits(score.unit), score=score)
        for score in scores
    ]
    shown = data.entries if entries is None else entries
    rows = [Row(each.name, [_cell(each, score.name) for score in scores], each, data.groups[each]) for each in shown]
    return Table("Scores", columns, rows)


def kinds_table(data: DataSet) -> Table | None:
    """Every shown model on clean images and every corruption, mean over severities; None without corruptions."""
    kinds = [score for score in scores_of(data.shown_models) if score.table and score.family == "corruption"]
    first = [score for score in kinds if score.table == kinds[0].table and not score.partial]
    clean = [score for score in scores_of(data.shown_models) if score.name == "clean"]
    return _score_table(data, [*clean, *first], data.entries if data.many else data.shown_models) if first else None


def _cell(entry: Entry, name: str) -> Cell | None:
    if name not in entry.summary:
        return None
    score = entry.summary.scores[name]
    ranked = not (name.removesuffix("_partial").endswith(KEPT) and at_chance(entry))
    missing = f"missing: {', '.join(score.missing)}" if score.missing else ""
    note = "; ".join(part for part in (score.note, missing, "" if ranked else AT_CHANCE) if part)
    return Cell(score.value, score.low, score.high, note=note, ranked=ranked)


def at_chance(entry: Entry) -> bool:
    """Whether the clean score may be that of guessing, so that what is retained of it says nothing."""
    clean, classes = entry.summary.scores.get("clean"), entry.records.header.get("classes")
    count = classes if isinstance(classes, int) else len(classes or ())
    if clean is None or isnan(clean.low):
        return False
    return clean.low <= (100 / count if scoring_of(entry.records.task).one_class and count else 0.0)


def _digits(unit: str) -> int:
    return 1 if unit.startswith("%") else 3
