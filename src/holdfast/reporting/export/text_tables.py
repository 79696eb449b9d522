"""Text tables for the terminal and Markdown."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from holdfast.io.markdown import DASH, escape, printable, table

SCORES = "scores"  # title of the first table


@dataclass(frozen=True)
class TextColumn:
    """A column: label, group, short label of at most four letters for narrow tables, and unit.

    ``better`` is ``high`` or ``low``, so that the best value can be highlighted.
    """

    label: str
    group: str = ""
    short: str = ""
    unit: str = ""
    better: str = ""


@dataclass(frozen=True)
class TextValue:
    """A number with the bounds of its interval, if any."""

    value: float
    low: float = float("nan")
    high: float = float("nan")

    @property
    def sure(self) -> bool:
        """Whether the value has an interval."""
        return self.low == self.low  # not NaN


@dataclass(frozen=True)
class TextRow:
    """A row of values; ``paper`` marks published scores, and ``measured_on`` is the same for rows to be compared."""

    name: str
    values: tuple[TextValue | None, ...]
    paper: bool = False
    measured_on: str = ""


@dataclass(frozen=True)
class Block:
    """One table: title, columns and rows."""

    title: str
    columns: tuple[TextColumn, ...]
    lines: tuple[TextRow, ...]


def terminal(blocks: Sequence[Block], remarks: Sequence[str], *, width: int) -> str:
    """Format tables as plain text of at most ``width`` columns; a single model's scores become a list."""
    parts = []
    for block in blocks:
        if not any(column.short for column in block.columns):
            title = "" if block.title == SCORES else f"{printable(block.title)}\n"
            parts.append(title + (_list(block, width) if len(block.lines) == 1 else _wide(block, width)))
        else:
            parts.append(_narrow(block, width))
    parts.append("\n".join(_wrap_text(printable(remark), width) for remark in remarks))
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown(blocks: Sequence[Block], remarks: Sequence[str]) -> str:
    """Format one pipe table per block: intervals, the best of several models in bold, published scores in italics."""
    parts = []
    for block in blocks:
        header = ["model", *(escape(_with_unit(column)) for column in block.columns)]
        rows = formatted_rows(block, _markdown_name, _markdown_value)
        parts.append(f"**{escape(block.title)}**\n\n{table(header, rows, numbers=range(1, len(header)))}")
    parts.append("\n".join(f"- {escape(remark)}" for remark in remarks))
    return "\n\n".join(part for part in parts if part) + "\n"


def formatted_rows(block: Block, name: Callable[[TextRow], str], value: Callable[..., str]) -> list[list[str]]:
    """The cells of every row, formatted by ``name(row)`` and ``value(value, column, bold=)``: the best is bold."""
    best = best_values(block)
    return [
        [
            name(line),
            *(
                value(cell, column, bold=_is_best(line, cell, top, column))
                for cell, column, top in zip(line.values, block.columns, best, strict=True)
            ),
        ]
        for line in block.lines
    ]


def best_values(block: Block) -> list[dict[str, TextValue]]:
    """The best of several measured values of every column, among the rows of the same data and protocol."""
    found: list[dict[str, TextValue]] = []
    for index, column in enumerate(block.columns):
        sign = {"high": 1, "low": -1}.get(column.better, 0)
        groups: dict[str, list[TextValue]] = {}
        for line in block.lines:
            if sign and not line.paper and (value := line.values[index]) is not None:
                groups.setdefault(line.measured_on, []).append(value)
        best = {key: max(values, key=lambda v: sign * v.value) for key, values in groups.items() if len(values) > 1}
        found.append(best)
    return found


def _is_best(line: TextRow, value: TextValue | None, best: dict[str, TextValue], column: TextColumn) -> bool:
    """Whether a measured value is printed like the best one: ties are bold together."""
    top = best.get(line.measured_on)
    if line.paper or value is None or top is None:
        return False
    return as_fixed(value.value, column.unit) == as_fixed(top.value, column.unit)


def shorten_text(text: str, width: int) -> str:
    """Shorten text to ``width`` letters in the middle, where names differ least."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def as_fixed(value: float, unit: str) -> str:
    """Format percent with one digit and other units with two, in four letters if possible: 7.3, 98.6, 100, 0.52."""
    if not unit.startswith("%") and abs(value) < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if abs(value) < 99.95 else f"{value:.0f}"


def _list(block: Block, width: int) -> str:
    names = [printable(column.label) for column in block.columns]
    widest = max(map(len, names))
    lines = [shorten_text(printable(block.lines[0].name), width)]
    for name, column, value in zip(names, block.columns, block.lines[0].values, strict=True):
        number = f"{value.value:8.2f}" if value else f"{DASH:>8}"
        bounds = f"  ({value.low:.2f} to {value.high:.2f})" if value and value.sure else ""
        lines.append(f"  {name:<{widest}} {number} {column.unit}{bounds}")
    return "\n".join(lines)


def _wide(block: Block, width: int) -> str:
    name_width = min(max(len(printable(line.name)) for line in block.lines), max(width // 3, 16))
    parts = []
    texts = [
        [_with_bounds(value, column) for value, column in zip(line.values, block.columns, strict=True)]
        for line in block.lines
    ]
    needed = [
        max(6, len(column.label), *(len(row[index]) for row in texts)) + 2 for index, column in enumerate(block.columns)
    ]
    for first, last in _chunks(needed, width - name_width):
        columns, widths = block.columns[first:last], needed[first:last]
        head = " " * name_width + "".join(f"{column.label:>{w}}" for column, w in zip(columns, widths, strict=True))
        rows = [
            f"{shorten_text(printable(line.name), name_width):<{name_width}}"
            + "".join(f"{text:>{w}}" for text, w in zip(row[first:last], widths, strict=True))
            for line, row in zip(block.lines, texts, strict=True)
            if any(line.values[first:last])
        ]
        parts.append("\n".join([head, *rows]))
    return "\n\n".join(parts)


def _narrow(block: Block, width: int) -> str:
    """Format columns five letters wide under their groups; groups that do not fit become another table."""
    groups = [list(part) for _, part in groupby(range(len(block.columns)), key=lambda i: block.columns[i].group)]
    needed = 5 * len(block.columns) + len(groups)
    if width - needed < 12 and len(groups) > 1:
        first = groups[-1][0]
        return "\n\n".join(_narrow(_part(block, columns), width) for columns in (slice(first), slice(first, None)))
    longest = max(len(printable(line.name)) for line in block.lines)
    name_width = max(12, min(longest, width - needed))
    over = "".join(" " + _centre_text(block.columns[group[0]].group, 5 * len(group) - 1) + " " for group in groups)
    lines = (
        [f"{block.title}", f"{'':<{name_width}}{over}".rstrip()]
        if any(c.group for c in block.columns)
        else [block.title]
    )
    lines.append(" " * name_width + _group_cells([column.short for column in block.columns], groups))
    for line in block.lines:
        name = f"{shorten_text(printable(line.name), name_width):<{name_width}}"
        lines.append(name + _group_cells(_plain_values(line.values, block.columns), groups))
    return "\n".join(text.rstrip() for text in lines)


def _part(block: Block, columns: slice) -> Block:
    lines = tuple(replace(line, values=line.values[columns]) for line in block.lines if any(line.values[columns]))
    return Block(block.title, block.columns[columns], lines)


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
    import textwrap

    return "\n".join(textwrap.wrap(text, width, subsequent_indent="    ", break_on_hyphens=False))


def _with_bounds(value: TextValue | None, column: TextColumn) -> str:
    if value is None or not value.sure:
        return _plain_values([value], [column])[0]
    low, high = as_fixed(value.low, column.unit), as_fixed(value.high, column.unit)
    return f"{as_fixed(value.value, column.unit)} ({low} to {high})"


def _plain_values(values: Sequence[TextValue | None], columns: Sequence[TextColumn]) -> list[str]:
    pairs = zip(values, columns, strict=True)
    return [as_fixed(value.value, column.unit) if value is not None else DASH for value, column in pairs]


def _with_unit(column: TextColumn) -> str:
    return f"{column.label}, {column.unit}" if column.unit and not column.short else column.label


def _markdown_value(value: TextValue | None, column: TextColumn, *, bold: bool) -> str:
    if value is None:
        return DASH
    number, text = as_fixed(value.value, column.unit), _with_bounds(value, column)
    return f"**{number}**{text.removeprefix(number)}" if bold else text


def _markdown_name(line: TextRow) -> str:
    return f"*{escape(line.name)}*" if line.paper else escape(line.name)
