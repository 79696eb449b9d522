"""Analysis section of the report: the figures of ``holdfast analyze`` from stored results."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from holdfast.analysis.base import Analysis
from holdfast.analysis.figure_groups import group_alike, in_words
from holdfast.analysis.registry import ANALYSES
from holdfast.analysis.results import AnalysisResult
from holdfast.errors import HoldfastError
from holdfast.reporting.comparable import MANY
from holdfast.reporting.figures.charts import ReportFigure, svg_picture
from holdfast.reporting.runs import Run
from holdfast.reporting.sections.section import Section


def analysis_section(runs: Sequence[Run]) -> Section:
    """Build the section from the runs with analyses."""
    analysed = [run for run in runs if run.results]
    some = f" Figures of the first {MANY} of {len(analysed)} models." if len(analysed) > MANY else ""
    text = f"Results of holdfast analyze: attention, noise decay, grouping.{some}"
    pictures, problems = analysis_pictures(analysed[:MANY])
    pictures = sorted(pictures, key=lambda picture: picture.wide)  # wide figures last, so that the grid has no holes
    return Section("attention", "Inside the models", text, pictures, problems=problems)


def analysis_pictures(runs: Sequence[Run]) -> tuple[list[ReportFigure], list[str]]:
    """Draw the figures of all analyses; return them and a sentence about each failure."""
    pictures, problems = [], []
    for analysis, results, name in _wanted_figures(runs):
        try:
            pictures.append(_picture(analysis, results, name=name))
        except (HoldfastError, KeyError, IndexError, ValueError, TypeError) as error:  # results of another version
            labels = ", ".join(result.label for result in results)
            problems.append(f"{analysis.name} ({labels}): not drawn, {error}")
    return pictures, problems


def _wanted_figures(runs: Sequence[Run]) -> Iterator[tuple[Analysis, list[AnalysisResult], str]]:
    """Group results by figure; results of different images or settings are never combined."""
    found = [replace(result, header={**result.header, "label": run.name}) for run in runs for result in run.results]
    for analysis in ANALYSES.values():
        mine = [result for result in found if result.kind == analysis.name]
        if analysis.shown is None or not mine:
            continue
        try:
            groups = [[result] for result in mine] if analysis.shown.each else group_alike(analysis, mine)
        except (KeyError, IndexError, ValueError, TypeError):  # results of another version: each on its own
            groups = [[result] for result in mine]
        for number, results in enumerate(groups):
            yield analysis, results, f"analysis-{analysis.name}-{number}"


def _picture(analysis: Analysis, results: list[AnalysisResult], *, name: str) -> ReportFigure:
    shown = analysis.shown
    assert shown is not None
    title = f"{shown.title} – {results[0].label}" if shown.each else shown.title
    settings = in_words(analysis, results[0])
    images = f"Images: {results[0].header.get('data', 'unknown')}."
    caption = " ".join(filter(None, [shown.caption, images, f"Settings: {settings}." if settings else ""]))
    wide, aside = shown.panels or shown.pixels, shown.pixels and shown.each
    return svg_picture(lambda: shown.draw(results), name=name, title=title, caption=caption, wide=wide, aside=aside)
