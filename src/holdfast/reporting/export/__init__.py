"""Scores as text: for the terminal, Markdown, LaTeX, CSV and RobustBench's JSON."""

from holdfast.reporting.export.tables import FORMATS, export

__all__ = ["FORMATS", "export"]
