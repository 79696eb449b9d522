"""Tables for notebooks."""

from collections.abc import Iterable, Sequence
from html import escape


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A plain HTML table; everything is escaped."""
    titles = "".join(f"<th style='text-align:left'>{escape(title)}</th>" for title in head)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    told = f"<caption style='caption-side:top;text-align:left'>{escape(caption)}</caption>"
    return f"<table>{told}<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
