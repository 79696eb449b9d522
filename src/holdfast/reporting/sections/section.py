"""What a section is: figures and tables that belong to the runs, not to a data set."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.reporting.figures.charts import ReportFigure
from holdfast.reporting.sections.score_tables import Table


@dataclass(frozen=True)
class TextTable:
    """A table of text alone, the first column names the lines.

    Attributes:
        title: what stands above it.
        columns: headings, the first of the lines' names.
        lines: of text.
        shades: errors in percent behind the first column, which are the values' colours; none for a plain table.
        aside: whether it is folded up until somebody asks for it.
    """

    title: str
    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    shades: Sequence[Sequence[float | None]] = ()
    aside: bool = False


@dataclass(frozen=True)
class Section:
    """One section of the page; with neither figures nor tables it is left out.

    Attributes:
        anchor: its address on the page.
        title: its heading.
        description: what stands below it.
        figures: its pictures.
        table: a line per run.
        tables: others.
        problems: sentences about what cannot be shown, which stand on top of the page.
    """

    anchor: str
    title: str
    description: str
    figures: Sequence[ReportFigure] = ()
    table: Table | None = None
    tables: Sequence[TextTable] = ()
    problems: Sequence[str] = ()

    @property
    def filled(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.figures or self.tables)
