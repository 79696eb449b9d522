"""Tables of published scores, next to measured ones and on their own."""

from collections.abc import Mapping, Sequence

from holdfast.published.paper_scores import IMAGENET, TABLES, PaperColumn, PaperScore, paper_says
from holdfast.reporting.comparable import DataSet, Entry
from holdfast.reporting.table import Cell, Column, Row, Table


def published_tables(data: DataSet) -> list[Table]:
    """Build the papers' tables on the same data, in the papers' order."""
    found = []
    for table in TABLES:
        if table.fits(data.baseline.records.header):
            columns = [column for column in table.columns if any(column.name in row.printed for row in table.rows)]
            names = [column.name for column in columns]
            rows = [Row(row.name, [row.where, *_cells(row.printed, names)], paper=True) for row in table.rows]
            found.append(_table(table.title, columns, rows))
    return found


def paper_table(data: DataSet) -> Table | None:
    """Build the table of measured and published scores of the same architectures; None without published ones.

    For Cityscapes and COCO all published rows are listed, since a segmenter's name is not its encoder's.
    """
    table = next((table for table in TABLES if table.fits(data.baseline.records.header)), None)
    if table is IMAGENET:
        printed = {entry: paper_says(entry.run.architecture or "") for entry in data.models}
        says = [row for rows in printed.values() for row in rows]
        columns = [column for column in table.columns if any(column.score in row.values for row in says)]
        rows = [each for entry, found in printed.items() if found for each in _rows([entry], found, columns)]
        return _table(table.title, columns, rows) if rows else None
    if table is None or not all(column.score for column in table.columns):
        return None
    return _table(table.title, table.columns, _rows(data.models, table.rows, table.columns))


def _rows(entries: Sequence[Entry], printed: Sequence[PaperScore], columns: Sequence[PaperColumn]) -> list[Row]:
    """The measured rows, then the printed ones that have a score of the columns."""
    names = [column.score for column in columns]
    values = {entry: {name: entry.summary[name].value for name in names if name in entry.summary} for entry in entries}
    ours = [Row(entry.name, ["measured here", *_cells(values[entry], names)], entry) for entry in entries]
    shown = [row for row in printed if any(name in row.values for name in names)]
    return [*ours, *(Row(row.name, [row.where, *_cells(row.values, names)], paper=True) for row in shown)]


def _table(title: str, columns: Sequence[PaperColumn], rows: Sequence[Row]) -> Table:
    scores = [Column(column.label, better=column.better, digits=1, score=column) for column in columns]
    return Table(title, [Column("source"), *scores], rows)


def _cells(values: Mapping[str, float], names: Sequence[str]) -> list[Cell | None]:
    return [Cell(values[name]) if name in values else None for name in names]
