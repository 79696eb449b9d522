"""The fenced blocks of README and docs.

A comment in front of a block says when it is not run as every other one:
``<!-- full: why -->`` runs it with ``make test-all`` only, ``<!-- not run: why -->`` never.
"""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(
    r"(?:^<!-- (?P<remark>full|not run): (?P<why>[^\n]+?) -->\n\n?)?"
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """What stands between two fences, where, and what the comment in front says."""

    page: str
    line: int
    language: str
    text: str
    remark: str  # "", "full" or "not run"
    why: str

    @property
    def place(self) -> str:
        """As editors understand it."""
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """In their order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page=page.relative_to(ROOT).as_posix(),
            line=text.count("\n", 0, found.start("indent")) + 1,
            language=found["language"],
            text=textwrap.dedent(found["text"]),
            remark=found["remark"] or "",
            why=found["why"] or "",
        )
        for found in _FENCE.finditer(text)
    ]
