"""Output for terminals and pipes: tables fit a terminal, and are one line per row in a pipe, for grep and cut."""

import logging
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPED = 10_000  # columns of a pipe: no row wraps


def message_console(*, stderr: bool = False, quiet: bool = False) -> "Console":
    """Console for sentences: on a terminal, lines end between words; in a pipe, nothing wraps."""
    from rich.console import Console

    console = Console(emoji=False, stderr=stderr, quiet=quiet, highlight=False)
    console.soft_wrap = not (sys.stderr if stderr else sys.stdout).isatty()
    return console


class WrappedWarnings(logging.Handler):
    """Prints log records on a terminal, with lines that end between words."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        message_console(stderr=True).print(self.format(record), markup=False)


def table_width() -> int:
    """Width of standard output in characters; in a pipe so many that nothing wraps."""
    from rich.console import Console

    return Console().width if sys.stdout.isatty() else PIPED


def print_table(table: "Table") -> None:
    """Print a table."""
    from rich.console import Console

    if sys.stdout.isatty():  # rich also takes a pipe for a terminal, if FORCE_COLOR is set
        Console(emoji=False, highlight=False).print(table)
    else:
        sys.stdout.write(piped_text(table))


def piped_text(table: "Table") -> str:
    """A table as plain text with one line per row."""
    from rich.console import Console

    console = Console(emoji=False, highlight=False, width=PIPED, no_color=True, force_terminal=False)
    with console.capture() as captured:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())
