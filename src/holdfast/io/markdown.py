"""Markdown: text without markup, and pipe tables."""

import re
from collections.abc import Sequence

DASH = "–"


def printable(text: str) -> str:
    """Make text a single line without control characters, which could move the cursor or reverse the text."""
    return "".join(letter if letter.isprintable() else "�" for letter in " ".join(text.split()))


def escape(text: str) -> str:
    """Text as Markdown shows it: one line, no HTML, no links, no emphasis, no new table cells."""
    text = printable(text).replace("&", "&amp;").replace("<", "&lt;")
    text = re.sub(r"([\\`*\[\]|#~])", r"\\\1", text)
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)  # within a word, Markdown leaves underscores alone


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    """Pipe table of Markdown cells; the columns ``numbers`` are aligned to the right."""
    rule = ["---:" if place in numbers else "---" for place in range(len(head))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, rule, *rows])
