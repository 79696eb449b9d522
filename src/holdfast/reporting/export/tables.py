"""Score tables for the terminal, Markdown, LaTeX, CSV and RobustBench's JSON.

The entry point is ``export(records, format="md")``. Every model, and every view of a model with several predictions,
is a row; published scores of the same architecture can follow it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np

from holdfast.corruptions.sequences import SEQUENCES
from holdfast.corruptions.severities import EXTRA, GROUPS, OWN, short_heading, table_group
from holdfast.errors import HoldfastError, nearest
from holdfast.metrics.summary import Score, Summary, clean_cell, some, summarise
from holdfast.published.paper_scores import PaperScore, architecture_of, of_imagenet, paper_says
from holdfast.records.class_map import answer_protocol, answers_in_short, class_map_words
from holdfast.records.compatibility import without_older
from holdfast.records.records import Records
from holdfast.reporting.export import csv_json, latex, text_tables
from holdfast.reporting.export.text_tables import SCORES
from holdfast.reporting.table import Cell, Column, Row, Table


@dataclass(frozen=True)
class ExportRow:
    """One row of the tables: measured or published scores."""

    name: str
    summary: Summary | None = None
    printed: PaperScore | None = None

    @property
    def measured_on(self) -> str:
        """Data and protocol: only rows that agree in these are compared."""
        header = self.summary.header if self.summary is not None else {}
        keys = ("data_fingerprint", "data_content", "label", "preset") if "data_fingerprint" in header else ("data",)
        return " ".join([*(str(header.get(key)) for key in keys), answer_protocol(header)])

    def value(self, name: str) -> Cell | None:
        """One score; published scores have no interval."""
        if self.printed is not None:
            return Cell(self.printed.values[name]) if name in self.printed.values else None
        score = self.summary.scores.get(name) if self.summary is not None else None
        return Cell(score.value, score.low, score.high) if score is not None and not isnan(score.value) else None


def export(
    records: Records | Sequence[Records],
    format: str = "terminal",
    *,
    paper: bool = False,
    baseline: Records | None = None,
    width: int = 100,
    intervals: bool = True,
) -> str:
    """Format the scores of records as text.

    Args:
        records: one record set or several; each of their views is a row.
        format: ``terminal``, ``md``, ``latex``, ``csv`` (one line per score) or ``robustbench`` (JSON).
        paper: add published scores of the same architectures, for ImageNet's classes.
        baseline: the model that mCE and mFR are normalised by, as in `holdfast.metrics.summary.summarise`.
        width: width of the terminal in characters.
        intervals: whether to compute 95 % intervals, as in `holdfast.metrics.summary.summarise`.
    """
    name = ALIASES.get(format, format)
    if name not in FORMATS:
        raise HoldfastError(
            f"format must be one of {', '.join(FORMATS)}, got {format!r}{nearest(format, [*FORMATS, *ALIASES])}"
        )
    sets = [records] if isinstance(records, Records) else list(records)
    rows = list(table_rows(sets, paper=paper, baseline=baseline, intervals=intervals))
    return FORMATS[name](rows, width)


def table_rows(
    sets: Sequence[Records], *, paper: bool = False, baseline: Records | None = None, intervals: bool = True
) -> Iterator[ExportRow]:
    """One row per record set and view, followed by published scores of the architecture."""
    sets = without_older(sets)
    apart = iter(_names_apart(sets))
    for records in sets:
        clean = clean_elsewhere(records, sets)
        for view in records.views:
            other = clean.view(view) if clean is not None and view in clean.views else None
            summary = summarise(records.view(view), baseline=baseline, clean=other, intervals=intervals)
            yield ExportRow(next(apart), summary)
        if paper and of_imagenet(records.header):
            yield from (
                ExportRow(str(printed), printed=printed) for printed in paper_says(architecture_of(records.header))
            )


def tables_of(rows: Sequence[ExportRow]) -> list[Table]:
    """Build the tables: overall scores, then accuracy, CE, flip probability and top-5 distance by kind."""
    names = dict.fromkeys(score.table for row in rows for score in row.summary or () if score.table)
    found = [_headline(rows), *(_by_kind(rows, name) for name in names)]
    return [table for table in found if table.columns and table.rows]


def remarks(rows: Sequence[ExportRow]) -> list[str]:
    """Remarks below the tables: the data, the missing cells of partial scores, and notes."""
    scores = [score for row in rows for score in row.summary or ()]
    tables = {table for table in {score.table for score in scores} if in_part(scores, table)}
    return [f"{row.name}: {text}" for row in rows if row.summary is not None for text in _remarks(row.summary, tables)]


def _remarks(summary: Summary, tables: Collection[str]) -> Iterator[str]:
    yield describe_measurement(summary)
    if summary.interval_note:
        yield summary.interval_note
    if summary.unfinished:
        yield f"incomplete, evaluate again to resume: {some(summary.unfinished)}"
    incomplete: dict[tuple[str, ...], list[str]] = {}
    for score in summary:
        if score.partial and score.table not in tables:
            incomplete.setdefault(score.missing, []).append(f"{score.label} {score.value:.2f}")
    for missing, partial in incomplete.items():
        yield f"without {some(missing)}: {', '.join(partial)}"
    yield from (f"{score.label} {score.value:.2f}: {score.note}" for score in summary if score.note)


def describe_measurement(summary: Summary) -> str:
    """Describe data and protocol in one line."""
    header = summary.header
    parts = [
        str(header.get("data", "data")),
        str(header.get("label", "")),
        f"preset {header['preset']}" if "preset" in header else "",
        f"{summary.images} images",
        str(summary.passes) if summary.passes is not None else "",
        class_map_words(header),
        f"{summary.excluded} unreadable, excluded" if summary.excluded else "",
        "procedural frost" if "procedural" in str(header.get("frost", "")) else "",
    ]
    return ", ".join(part for part in parts if part)


def _headline(rows: Sequence[ExportRow]) -> Table:
    names: dict[str, Score] = {}
    for row in rows:
        for score in row.summary or ():
            if not score.table:
                names.setdefault(score.name, score)
    labels = distinguish_rows([_short_label(score) for score in names.values()], list(names))
    columns = tuple(
        Column(label, unit=score.unit, better=score.better) for label, score in zip(labels, names.values(), strict=True)
    )
    return Table(SCORES, columns, _rows(rows, list(names)))


TITLES = {
    "domain": "accuracy by domain",
    "shape_bias": "shape bias by class of shape",
    "ce": "CE by kind",
    "fp": "flip probability by sequence",
    "t5d": "top-5 distance by sequence",
}


def in_part(scores: Iterable[Score], table: str) -> str:
    """Common suffix of the labels of a table in which all kinds miss the same severities; else empty."""
    ends = {score.label.removeprefix(score.kind) for score in scores if score.table == table and score.table}
    return ends.pop() if len(ends) == 1 else ""


def _by_kind(rows: Sequence[ExportRow], table: str) -> Table:
    """Build a table with a column per kind; partial kinds have none, unless all miss the same severities."""
    scores = [score for row in rows for score in row.summary or () if score.table == table]
    part = in_part(scores, table)
    names = {score.kind: score.name for score in scores if part or not score.partial}
    family = scores[0].family
    # with standard kinds, a missing one keeps its column: an empty cell says more than no cell
    standard = any(kind in members for members in GROUPS.values() for kind in names)
    shown = [
        (group, kind)
        for group, kinds in _groups(list(names), family=family).items()
        for kind in kinds
        if kind in names or (standard and group in GROUPS)
    ]
    unit, better, title = scores[0].unit, scores[0].better, f"{TITLES.get(table, f'{table} by kind')}{part}"
    in_full = family == "domain"  # few, with names of the user's that four letters do not tell apart
    columns = tuple(
        Column(kind, group=group, short="" if in_full else short_heading(kind), unit=unit, better=better)
        for group, kind in shown
    )
    shown_rows = _rows(rows, [names.get(kind, "") for _, kind in shown], intervals=in_full)
    return Table(title if in_full else f"{title}, {unit}", columns, shown_rows)


def _groups(kinds: Sequence[str], *, family: str) -> dict[str, list[str]]:
    """Kinds by group in the order of the tables; registered ones come last, in their own groups."""
    if family == "corruption":
        known = {group: list(members) for group, members in GROUPS.items()} | {"extra": list(EXTRA)}
    else:
        known = {"": [kind for kind in SEQUENCES if kind in kinds] if family == "sequence" else list(kinds)}
    listed = {kind for members in known.values() for kind in members}
    for kind in (kind for kind in kinds if kind not in listed):
        known.setdefault(table_group(kind) if family == "corruption" else OWN, []).append(kind)
    return known


def _rows(rows: Sequence[ExportRow], names: Sequence[str], *, intervals: bool = True) -> tuple[Row, ...]:
    found = []
    for row in rows:
        values = [row.value(name) for name in names]
        cells = values if intervals else [Cell(value.value) if value else None for value in values]
        if any(values):
            paper = row.printed is not None
            found.append(Row(row.name, tuple(cells), paper=paper, measured_on="" if paper else row.measured_on))
    return tuple(found)


def _short_label(score: Score) -> str:
    return f"{score.label.partition(' (partial')[0]} partial" if score.partial else score.label


def distinguish_rows(labels: Sequence[str], details: Sequence[str]) -> list[str]:
    """Make labels distinct: equal ones get their detail, and a number if that is equal as well."""
    found: list[str] = []
    for label, detail in zip(labels, details, strict=True):
        name = label if labels.count(label) == 1 else f"{label} ({detail})"
        again = sum(other == name or other.startswith(f"{name} #") for other in found)
        found.append(f"{name} #{again + 1}" if again else name)
    return found


def _names_apart(sets: Sequence[Records]) -> list[str]:
    """A distinct name for every record set and view; equal ones get their run's folder or seed."""
    rows = [(records, view) for records in sets for view in records.views]
    names = [_row_name(records, view, sets) for records, view in rows]
    folders = [str(records.folder.parent.parent) if records.folder else "in memory" for records, _ in rows]
    seeds = [f"{folder}, seed {records.header.get('seed')}" for folder, (records, _) in zip(folders, rows, strict=True)]
    return distinguish_rows(names, folders if len(set(folders)) > 1 or len(set(seeds)) == len(set(folders)) else seeds)


def _row_name(records: Records, view: str, sets: Sequence[Records]) -> str:
    model = str(records.header.get("model", "model"))
    several = len({str(other.header.get("data")) for other in sets}) > 1
    data = str(records.header.get("data", "")) if several else ""
    apart = len({class_map_words(other.header) for other in sets}) > 1
    parts = [model, view, data, answers_in_short(records.header) if apart else ""]
    return " · ".join(part for part in parts if part)


def clean_elsewhere(records: Records, sets: Sequence[Records]) -> Records | None:
    """Find records of the same model with the clean cell of a stored set's images."""
    families = {cell.spec.family for cell in records.cells.values()}
    if "clean" in families or not families & {"corruption", "sequence"}:
        return None
    wanted = records.header.get("model_fingerprint")
    ids = next(iter(records.cells.values())).ids
    for other in sets:
        same = wanted is not None and other.header.get("model_fingerprint") == wanted and other.task == records.task
        name = clean_cell(other) if same else None
        if name is not None and np.isin(other.cells[name].ids, ids).any():
            return other
    return None


def _terminal(rows: Sequence[ExportRow], width: int) -> str:
    return text_tables.terminal(tables_of(rows), remarks(rows), width=width)


def _markdown(rows: Sequence[ExportRow], width: int) -> str:
    return text_tables.markdown(tables_of(rows), remarks(rows))


def _latex(rows: Sequence[ExportRow], width: int) -> str:
    answers = {class_map_words(row.summary.header) for row in rows if row.summary is not None}
    return latex.latex(tables_of(rows), remarks(rows), note=answers.pop() if len(answers) == 1 else "")


def _csv(rows: Sequence[ExportRow], width: int) -> str:
    return csv_json.comma_separated([(row.name, row.summary, row.printed) for row in rows])


def _robustbench(rows: Sequence[ExportRow], width: int) -> str:
    return csv_json.robustbench([(row.name, row.summary) for row in rows if row.summary is not None])


FORMATS: dict[str, Callable[[Sequence[ExportRow], int], str]] = {
    "terminal": _terminal,
    "md": _markdown,
    "latex": _latex,
    "csv": _csv,
    "robustbench": _robustbench,
}
ALIASES = {"markdown": "md", "tex": "latex", "json": "robustbench"}
