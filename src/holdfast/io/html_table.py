"""HTML tables with which summaries and comparisons appear in notebooks."""

from collections.abc import Iterable, Sequence
from html import escape


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format an HTML table; all text is escaped."""
    titles = "".join(f"<th style='text-align:left'>{escape(title)}</th>" for title in head)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    title = f"<caption style='caption-side:top;text-align:left'>{escape(caption)}</caption>"
    return f"<table>{title}<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
