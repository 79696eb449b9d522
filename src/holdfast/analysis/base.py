"""What an analysis is: one object says how it is run, told in numbers, drawn, reported and used in studies.

Everything here and in the analyses' own files can be imported without torch; what needs it is imported when it is run.
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
Found = tuple[dict[str, Any], Arrays]  # what the header gets, and the arrays
Tick = Callable[[int], None]  # called with a number of images (or images × passes) when they are done
Results = Sequence[AnalysisResult]
Numbers = dict[str, float]
Page = tuple[str, "Callable[[], Figure]"]  # a file name without ending, and what draws it


@dataclass(frozen=True)
class FigureSpec:
    """How a report shows an analysis.

    Attributes:
        title: the figure's.
        caption: how to read it.
        draw: makes the figure of results that are alike.
        pixels: made of images and maps.
        each: one figure per model instead of one of all models together.
        panels: of several axes side by side, which need the page's width.
    """

    title: str
    caption: str
    draw: "Callable[[Results], Figure]"
    pixels: bool = False
    each: bool = False
    panels: bool = False


@dataclass(frozen=True)
class StudyColumn:
    """What a study keeps of an analysis: one value per image, and a column of their means.

    Attributes:
        name: the column's name in study files.
        title: its heading.
        per_image: the values, (images,), from a result.
        better: ``higher`` or ``lower``.
        says: one line for the reader.
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
    """One analysis.

    Attributes:
        name: on the command line, in files and in reports.
        line: what it finds, for ``--help``.
        run: measures; imports torch itself.
        settings: what it depends on.
        ticks: how many steps of progress so many images are.
        headline: the few numbers that a result comes down to.
        pages: the figures of one model's result, or of several that are alike.
        compares: whether figures show several models together; else each is drawn on its own.
        shown: how a report shows it.
        columns: what a study keeps of it.
        alike: what of a result, beside images and settings, must be the same in one figure.
        definition: raised when the same settings begin to mean other numbers; stored ones are then computed again.
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

    def chosen(self, settings: Settings) -> dict[str, Any]:
        """The settings that concern it, as plain data."""
        return {each.name: plain(getattr(settings, each.name)) for each in self.settings}


def plain(value: Any) -> Any:
    """A setting's value as JSON has it."""
    return list(value) if isinstance(value, tuple) else value
