"""Section of the report: figures and tables of the runs, independent of a data set."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.reporting.figures.charts import ReportFigure
from holdfast.reporting.table import Table


@dataclass(frozen=True)
class Section:
    """One section of the page; omitted without figures and tables.

    Attributes:
        anchor: id of the section on the page.
        title: heading.
        description: text below the heading.
        figures: figures.
        table: a table with one row per run.
        tables: further tables.
        problems: warnings for the top of the page.
    """

    anchor: str
    title: str
    description: str
    figures: Sequence[ReportFigure] = ()
    table: Table | None = None
    tables: Sequence[Table] = ()
    problems: Sequence[str] = ()

    @property
    def has_content(self) -> bool:
        """Whether the section has figures or tables."""
        return bool(self.figures or self.tables)
