"""Text tables for the terminal and Markdown."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from holdfast.io.markdown import DASH, escape, printable
from holdfast.io.markdown import table as pipe_table
from holdfast.reporting.table import Cell, Column, Row, Table

SCORES = "scores"  # title of the first table


def terminal(tables: Sequence[Table], remarks: Sequence[str], *, width: int) -> str:
    """Format tables as plain text of at most ``width`` columns; a single model's scores become a list."""
    parts = []
    for table in tables:
        if not any(column.short for column in table.columns):
            title = "" if table.title == SCORES else f"{printable(table.title)}\n"
            parts.append(title + (_list(table, width) if len(table.rows) == 1 else _wide(table, width)))
        else:
            parts.append(_narrow(table, width))
    parts.append("\n".join(_wrap_text(printable(remark), width) for remark in remarks))
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown(tables: Sequence[Table], remarks: Sequence[str]) -> str:
    """Format one pipe table per table: intervals, the best of several models in bold, published scores in italics."""
    parts = []
    for table in tables:
        header = [escape(table.head), *(escape(_with_unit(column)) for column in table.columns)]
        rows = formatted_rows(table, _markdown_name, _markdown_value)
        parts.append(f"**{escape(table.title)}**\n\n{pipe_table(header, rows, numbers=range(1, len(header)))}")
    parts.append("\n".join(f"- {escape(remark)}" for remark in remarks))
    return "\n\n".join(part for part in parts if part) + "\n"


def formatted_rows(table: Table, name: Callable[[Row], str], value: Callable[..., str]) -> list[list[str]]:
    """The cells of every row, formatted by ``name(row)`` and ``value(cell, column, bold=)``: the best is bold."""
    return [
        [
            name(row),
            *(
                value(cell, column, bold=table.is_best(row, place))
                for place, (cell, column) in enumerate(zip(row.cells, table.columns, strict=True))
            ),
        ]
        for row in table.rows
    ]


def shorten_text(text: str, width: int) -> str:
    """Shorten text to ``width`` letters in the middle, where names differ least."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def _list(table: Table, width: int) -> str:
    names = [printable(column.label) for column in table.columns]
    widest = max(map(len, names))
    lines = [shorten_text(printable(table.rows[0].name), width)]
    for name, column, cell in zip(names, table.columns, table.rows[0].cells, strict=True):
        number = f"{cell.value:8.2f}" if isinstance(cell, Cell) else f"{cell or DASH:>8}"
        bounds = f"  ({cell.low:.2f} to {cell.high:.2f})" if isinstance(cell, Cell) and cell.has_interval else ""
        lines.append(f"  {name:<{widest}} {number} {column.unit}{bounds}")
    return "\n".join(lines)


def _wide(table: Table, width: int) -> str:
    name_width = min(max(len(printable(row.name)) for row in table.rows), max(width // 3, 16))
    parts = []
    texts = [
        [_with_bounds(value, column) for value, column in zip(row.cells, table.columns, strict=True)]
        for row in table.rows
    ]
    needed = [
        max(6, len(column.label), *(len(printed[index]) for printed in texts)) + 2
        for index, column in enumerate(table.columns)
    ]
    for first, last in _chunks(needed, width - name_width):
        columns, widths = table.columns[first:last], needed[first:last]
        head = " " * name_width + "".join(f"{column.label:>{w}}" for column, w in zip(columns, widths, strict=True))
        rows = [
            f"{shorten_text(printable(row.name), name_width):<{name_width}}"
            + "".join(f"{text:>{w}}" for text, w in zip(printed[first:last], widths, strict=True))
            for row, printed in zip(table.rows, texts, strict=True)
            if any(row.cells[first:last])
        ]
        parts.append("\n".join([head, *rows]))
    return "\n\n".join(parts)


def _narrow(table: Table, width: int) -> str:
    """Format columns five letters wide under their groups; groups that do not fit become another table."""
    groups = [list(part) for _, part in groupby(range(len(table.columns)), key=lambda i: table.columns[i].group)]
    needed = 5 * len(table.columns) + len(groups)
    if width - needed < 12 and len(groups) > 1:
        first = groups[-1][0]
        return "\n\n".join(_narrow(_part(table, columns), width) for columns in (slice(first), slice(first, None)))
    longest = max(len(printable(row.name)) for row in table.rows)
    name_width = max(12, min(longest, width - needed))
    over = "".join(" " + _centre_text(table.columns[group[0]].group, 5 * len(group) - 1) + " " for group in groups)
    lines = (
        [f"{table.title}", f"{'':<{name_width}}{over}".rstrip()]
        if any(c.group for c in table.columns)
        else [table.title]
    )
    lines.append(" " * name_width + _group_cells([column.short for column in table.columns], groups))
    for row in table.rows:
        name = f"{shorten_text(printable(row.name), name_width):<{name_width}}"
        texts = [column.text(cell) for column, cell in zip(table.columns, row.cells, strict=True)]
        lines.append(name + _group_cells(texts, groups))
    return "\n".join(text.rstrip() for text in lines)


def _part(table: Table, columns: slice) -> Table:
    rows = tuple(replace(row, cells=row.cells[columns]) for row in table.rows if any(row.cells[columns]))
    return Table(table.title, table.columns[columns], rows)


def _group_cells(cells: Sequence[str], groups: Sequence[Sequence[int]]) -> str:
    return "".join("".join(f"{cells[index]:>5}" for index in group) + " " for group in groups)


def _centre_text(text: str, width: int) -> str:
    return f" {text} ".center(width, "─") if text else " " * width


def _chunks(widths: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    first, used = 0, 0
    for index, width in enumerate(widths):
        if index > first and used + width > room:
            yield first, index
            first, used = index, 0
        used += width
    if widths:
        yield first, len(widths)


def _wrap_text(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, width, subsequent_indent="    ", break_on_hyphens=False))


def _with_bounds(cell: Cell | str | None, column: Column) -> str:
    text, bounds = column.text(cell), column.interval(cell)
    return f"{text} ({bounds})" if bounds else text


def _with_unit(column: Column) -> str:
    return f"{column.label}, {column.unit}" if column.unit and not column.short else column.label


def _markdown_value(cell: Cell | str | None, column: Column, *, bold: bool) -> str:
    number, text = column.text(cell), _with_bounds(cell, column)
    return f"**{number}**{text.removeprefix(number)}" if bold else escape(text)


def _markdown_name(row: Row) -> str:
    return f"*{escape(row.name)}*" if row.paper else escape(row.name)
