"""LaTeX tables with booktabs."""

from collections.abc import Callable, Sequence
from itertools import groupby

from holdfast.io.markdown import DASH, printable
from holdfast.reporting.export.text_tables import (
    Block,
    TextColumn,
    TextRow,
    TextValue,
    as_fixed,
    best_values,
    formatted_rows,
)


def latex(blocks: Sequence[Block], remarks: Sequence[str], *, note: str = "") -> str:
    """Write one ``table`` per block with booktabs: small intervals, the best of several models in bold.

    Remarks are comments above the tables; a note goes into every caption.
    """
    parts = ["\n".join(f"% {printable(remark)}" for remark in remarks)]
    for block in blocks:
        titles = ["model", *(_latex_text(column.short or column.label) for column in block.columns)]
        rows = formatted_rows(block, _latex_name, _latex_value)
        body = [r"\toprule", *_latex_groups(block), _row(titles), r"\midrule", *map(_row, rows), r"\bottomrule"]
        parts.append(
            "\n".join(
                [
                    r"\begin{table}",
                    r"\centering",
                    rf"\caption{{{_caption(block, note)}}}",
                    rf"\begin{{tabular}}{{l{'r' * len(block.columns)}}}",
                    *body,
                    r"\end{tabular}",
                    r"\end{table}",
                ]
            )
        )
    return "\n\n".join(part for part in parts if part) + "\n"


def _caption(block: Block, note: str) -> str:
    title = printable(block.title)
    units = dict.fromkeys(column.unit for column in block.columns if column.unit and not column.short)
    parts = [title[:1].upper() + title[1:], f"in {', '.join(units)}" if units else "", note]
    if any(value and value.sure for line in block.lines for value in line.values):
        parts.append("95 % intervals in brackets")
    if any(best_values(block)):
        parts.append("best in bold")
    return _latex_text("; ".join(part for part in parts if part) + ".")


def _latex_value(value: TextValue | None, column: TextColumn, *, bold: bool) -> str:
    if value is None:
        return DASH
    number = as_fixed(value.value, column.unit)
    text = rf"\textbf{{{number}}}" if bold else number
    if not value.sure:
        return text
    return rf"{text} {{\scriptsize ({as_fixed(value.low, column.unit)} to {as_fixed(value.high, column.unit)})}}"


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


def _latex_name(line: TextRow) -> str:
    return rf"\emph{{{_latex_text(line.name)}}}" if line.paper else _latex_text(line.name)


def _latex_groups(block: Block) -> list[str]:
    if not any(column.group for column in block.columns):
        return []
    names, rules, column = [""], [], 2
    for group, members in groupby(block.columns, key=lambda member: member.group):
        count = len(list(members))
        names.append(rf"\multicolumn{{{count}}}{{c}}{{{_latex_text(group)}}}")
        rules.append(rf"\cmidrule(lr){{{column}-{column + count - 1}}}")
        column += count
    return [_row(names), " ".join(rules)]


def _row(cells: Sequence[str]) -> str:
    escape: Callable[[str], str] = lambda cell: cell.replace(DASH, "--")  # noqa: E731
    return " & ".join(map(escape, cells)) + r" \\"
