"""`Analysis`: the definition of an analysis, with its run function, headline numbers, figures and study columns.

Everything here and in the analyses' own files can be imported without torch, which is imported when an analysis runs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.analysis.results import AnalysisResult
from holdfast.analysis.settings import Setting, Settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from holdfast.analysis.probe import Probe

Arrays = Mapping[str, np.ndarray]
Found = tuple[dict[str, Any], Arrays]  # header fields and arrays
Tick = Callable[[int], None]  # progress callback: images (or images × passes) done
Results = Sequence[AnalysisResult]
Numbers = dict[str, float]
Page = tuple[str, "Callable[[], Figure]"]  # a file name without suffix, and the function that draws it


@dataclass(frozen=True)
class FigureSpec:
    """The figure of an analysis in a report.

    Attributes:
        title: the figure's title.
        caption: explanation for the reader.
        draw: draws the figure from comparable results.
        pixels: whether it consists of images and maps.
        each: one figure per model instead of one for all models.
        panels: whether it has several axes side by side, which need the page's width.
    """

    title: str
    caption: str
    draw: "Callable[[Results], Figure]"
    pixels: bool = False
    each: bool = False
    panels: bool = False


@dataclass(frozen=True)
class StudyColumn:
    """A study's column of an analysis: one value per image, and their mean.

    Attributes:
        name: the column's name in study files.
        title: the column's heading.
        per_image: function from a result to the values, (images,).
        better: ``higher`` or ``lower``.
        says: one-line description.
    """

    name: str
    title: str
    per_image: Callable[[AnalysisResult], np.ndarray]
    better: str
    says: str


def _every_image(images: int, settings: Settings) -> int:
    return images


def _no_numbers(result: AnalysisResult) -> Numbers:
    return {}


def _nothing_more(result: AnalysisResult) -> Any:
    return None


def _no_pages(results: Results) -> Iterator[Page]:
    yield from ()


@dataclass(frozen=True)
class Analysis:
    """The definition of one analysis.

    Attributes:
        name: its name on the command line, in files and in reports.
        line: one-line description for ``--help``.
        run: computes the result; imports torch itself.
        settings: the settings that it depends on.
        ticks: number of progress steps for a number of images.
        headline: the headline numbers of a result.
        pages: the figures of one model's result, or of several comparable ones.
        compares: whether figures show several models together; otherwise each has its own.
        shown: its figure in a report.
        columns: its columns in studies.
        alike: part of a result that, beside images and settings, must be equal in one figure.
        definition: version, raised when the same settings give other numbers; stored results are then recomputed.
    """

    name: str
    line: str
    run: "Callable[[Probe, Settings, Tick], Found]"
    settings: tuple[Setting, ...] = ()
    ticks: Callable[[int, Settings], int] = _every_image
    headline: Callable[[AnalysisResult], Numbers] = _no_numbers
    pages: Callable[[Results], Iterator[Page]] = _no_pages
    compares: bool = True
    shown: FigureSpec | None = None
    columns: tuple[StudyColumn, ...] = ()
    alike: Callable[[AnalysisResult], Any] = _nothing_more
    definition: int = 1

    def relevant_settings(self, settings: Settings) -> dict[str, Any]:
        """The settings that the analysis depends on, as plain data."""
        return {each.name: plain(getattr(settings, each.name)) for each in self.settings}


def plain(value: Any) -> Any:
    """A setting's value as JSON represents it."""
    return list(value) if isinstance(value, tuple) else value
