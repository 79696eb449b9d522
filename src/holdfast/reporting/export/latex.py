"""LaTeX tables with booktabs."""

from collections.abc import Callable, Sequence
from itertools import groupby

from holdfast.io.markdown import DASH, printable
from holdfast.reporting.export.text_tables import formatted_rows
from holdfast.reporting.table import Cell, Column, Row, Table


def latex(tables: Sequence[Table], remarks: Sequence[str], *, note: str = "") -> str:
    """Write one ``table`` per table with booktabs: small intervals, the best of several models in bold.

    Remarks are comments above the tables; a note goes into every caption.
    """
    parts = ["\n".join(f"% {printable(remark)}" for remark in remarks)]
    for table in tables:
        titles = [_latex_text(table.head), *(_latex_text(column.short or column.label) for column in table.columns)]
        rows = formatted_rows(table, _latex_name, _latex_value)
        body = [r"\toprule", *_latex_groups(table), _row(titles), r"\midrule", *map(_row, rows), r"\bottomrule"]
        parts.append(
            "\n".join(
                [
                    r"\begin{table}",
                    r"\centering",
                    rf"\caption{{{_caption(table, note)}}}",
                    rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
                    *body,
                    r"\end{tabular}",
                    r"\end{table}",
                ]
            )
        )
    return "\n\n".join(part for part in parts if part) + "\n"


def _caption(table: Table, note: str) -> str:
    title = printable(table.title)
    units = dict.fromkeys(column.unit for column in table.columns if column.unit and not column.short)
    parts = [title[:1].upper() + title[1:], f"in {', '.join(units)}" if units else "", note]
    if any(isinstance(cell, Cell) and cell.has_interval for row in table.rows for cell in row.cells):
        parts.append("95 % intervals in brackets")
    if any(table.best):
        parts.append("best in bold")
    return _latex_text("; ".join(part for part in parts if part) + ".")


def _latex_value(cell: Cell | str | None, column: Column, *, bold: bool) -> str:
    number, bounds = column.text(cell), column.interval(cell)
    number = _latex_text(number) if isinstance(cell, str) else number
    text = rf"\textbf{{{number}}}" if bold else number
    return rf"{text} {{\scriptsize ({bounds})}}" if bounds else text


_LATEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "`": r"\textasciigrave{}",
    },
    **{"[": "{[}", "]": "{]}", "*": "{*}"},  # after \\ these would be read as its optional argument
    **{"·": r"$\cdot$", "…": r"\ldots{}", "–": "--", "−": "$-$", "×": r"$\times$", "�": "?"},
}


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in printable(text))


def _latex_name(row: Row) -> str:
    return rf"\emph{{{_latex_text(row.name)}}}" if row.paper else _latex_text(row.name)


def _latex_groups(table: Table) -> list[str]:
    if not any(column.group for column in table.columns):
        return []
    names, rules, column = [""], [], 2
    for group, members in groupby(table.columns, key=lambda member: member.group):
        count = len(list(members))
        names.append(rf"\multicolumn{{{count}}}{{c}}{{{_latex_text(group)}}}")
        rules.append(rf"\cmidrule(lr){{{column}-{column + count - 1}}}")
        column += count
    return [_row(names), " ".join(rules)]


def _row(cells: Sequence[str]) -> str:
    escape: Callable[[str], str] = lambda cell: cell.replace(DASH, "--")  # noqa: E731
    return " & ".join(map(escape, cells)) + r" \\"
