"""The table of every surface: the report, the leaderboard, the terminal, Markdown and LaTeX."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isnan, nan
from typing import Any

from holdfast.reporting.formatting import NOT_MEASURED, number, span


@dataclass(frozen=True)
class Cell:
    """A number with the bounds of its interval, if any.

    Attributes:
        value: the number.
        low: lower bound; NaN without an interval.
        high: upper bound.
        note: remark on the number.
        ranked: whether it is compared with the other numbers of its column.
    """

    value: float
    low: float = nan
    high: float = nan
    note: str = ""
    ranked: bool = True

    @property
    def has_interval(self) -> bool:
        """Whether the number has an interval."""
        return not isnan(self.low)


@dataclass(frozen=True)
class Column:
    """A column of numbers or words.

    Attributes:
        label: heading.
        group: heading above neighbouring columns.
        short: heading of at most four letters for narrow tables.
        unit: unit of the numbers.
        better: ``high`` or ``low``, so that the best number can be highlighted.
        digits: digits after the point; None for as many as four letters have room for.
        score: the score of which pages show the definition.
    """

    label: str
    group: str = ""
    short: str = ""
    unit: str = ""
    better: str = ""
    digits: int | None = None
    score: Any = None

    def text(self, cell: Cell | str | None) -> str:
        """The words or the number of a cell without its interval; a dash for what was not measured."""
        if cell is None or isinstance(cell, str):
            return NOT_MEASURED if cell is None else cell
        return self._number(cell.value)

    def interval(self, cell: Cell | str | None) -> str:
        """The interval of a cell: ``68.0 to 74.1``; empty without one."""
        if not isinstance(cell, Cell) or not cell.has_interval:
            return ""
        if self.digits is not None:
            return span(cell.low, cell.high, digits=self.digits)
        return f"{as_fixed(cell.low, self.unit)} to {as_fixed(cell.high, self.unit)}"

    def _number(self, value: float) -> str:
        return as_fixed(value, self.unit) if self.digits is None else number(value, digits=self.digits)


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        name: heading of the row.
        cells: numbers, words, or None for what was not measured.
        entry: the model of the row; has a name, a colour and a view.
        group: heading above neighbouring rows.
        paper: whether the scores are published ones.
        measured_on: data and protocol: only numbers of rows that agree in it are compared.
    """

    name: str
    cells: Sequence[Cell | str | None]
    entry: Any = None
    group: str = ""
    paper: bool = False
    measured_on: str = ""


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: caption.
        columns: columns after the one of the rows' names.
        rows: rows.
        head: heading of the rows' names.
        shades: errors in percent that colour the cells; empty for a plain table.
        aside: whether a page shows it collapsed at first.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    head: str = "model"
    shades: Sequence[Sequence[float | None]] = ()
    aside: bool = False

    @property
    def groups(self) -> list[tuple[str, list[Row]]]:
        """Rows by group, in the order in which groups first appear."""
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(row.group, []).append(row)
        return list(found.items())

    @cached_property
    def best(self) -> list[dict[str, str]]:
        """The best printed number of every column by data and protocol, where several measured ones are compared."""
        found = []
        for place, column in enumerate(self.columns):
            values: dict[str, list[float]] = {}
            for row in self.rows if column.better else ():
                if (cell := _compared(row, place)) is not None:
                    values.setdefault(row.measured_on, []).append(cell.value)
            choose = min if column.better == "low" else max
            found.append({key: column.text(Cell(choose(held))) for key, held in values.items() if len(held) > 1})
        return found

    def is_best(self, row: Row, place: int) -> bool:
        """Whether a number is printed like the best one of its column: ties are best together."""
        cell = _compared(row, place)
        return cell is not None and self.columns[place].text(cell) == self.best[place].get(row.measured_on)


def _compared(row: Row, place: int) -> Cell | None:
    cell = row.cells[place]
    return cell if isinstance(cell, Cell) and cell.ranked and not row.paper and not isnan(cell.value) else None


def table_of_words(title: str, head: Sequence[str], lines: Sequence[Sequence[str]], **options: Any) -> Table:
    """Build a table of words from its headings and lines, the first of each being that of the rows."""
    columns = [Column(label) for label in head[1:]]
    return Table(title, columns, [Row(line[0], line[1:]) for line in lines], head=head[0], **options)


def as_fixed(value: float, unit: str) -> str:
    """Format percent with one digit and other units with two, in four letters if possible: 7.3, 98.6, 100, 0.52."""
    if not unit.startswith("%") and abs(value) < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if abs(value) < 99.95 else f"{value:.0f}"
