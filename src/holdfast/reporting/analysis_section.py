"""Why the models hold or fail: the figures of ``holdfast analyze``, from stored results of the runs in a report."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from matplotlib.figure import Figure

from holdfast.analysis.results import Result
from holdfast.errors import HoldfastError
from holdfast.reporting import analysis_figures as curves
from holdfast.reporting import attention_figures as maps
from holdfast.reporting.pictures import Picture, png_picture, svg_picture
from holdfast.reporting.runs import Run

Results = Sequence[Result]


@dataclass(frozen=True)
class Kind:
    """How one analysis is shown.

    Attributes:
        name: the analysis.
        title: the figure's.
        caption: how to read it.
        draw: makes the figure.
        pixels: made of images and maps.
        each: one figure per model instead of one of all models together.
        panels: of several axes side by side, which need the page's width.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[Results], Figure]
    pixels: bool = False
    each: bool = False
    panels: bool = False


def _first(draw: Callable[[Result], Figure]) -> Callable[[Results], Figure]:
    return lambda results: draw(results[0])


KINDS = (
    Kind(
        "stability",
        "Does attention stay where it was?",
        "Cosine of the attention of an image and of the same image corrupted, one score per image. 1: nothing moved.",
        curves.stability_boxes,
    ),
    Kind(
        "occlusion",
        "Random patches hidden",
        "Accuracy and attention over random masks.",
        curves.occlusion_spread,
        panels=True,
    ),
    Kind(
        "overfocus",
        "Does attention crowd onto a few tokens?",
        "By layer. More effective tokens, and less attention in the top ones, is a wider look.",
        curves.overfocus_layers,
        panels=True,
    ),
    Kind(
        "diversity",
        "Do heads look at different things?",
        "Mean cosine of two heads of a layer. Low: they differ.",
        curves.diversity_layers,
    ),
    Kind(
        "noise-decay",
        "What blocks leave of noise",
        "Relative change of the features under noise, and significant eigenvalues, over depth.",
        curves.noise_decay_figure,
        panels=True,
    ),
    Kind(
        "maps",
        "Where one token looks",
        "The token in the centre, clean and corrupted, layer by layer.",
        maps.query_overlays,
        pixels=True,
    ),
    Kind(
        "patches",
        "Patches that the corruption model hides",
        "And the confidence that they cost (AFAT).",
        maps.patches_figure,
        pixels=True,
    ),
    Kind(
        "grouping",
        "Which tokens belong together",
        "Groups of tokens, clean above and corrupted below.",
        _first(maps.groups_figure),
        pixels=True,
        each=True,
    ),
    Kind(
        "dilation", "How wide tokens look", "TAP's mean dilation.", _first(maps.dilation_figure), pixels=True, each=True
    ),
    Kind(
        "gates",
        "Which adapter tokens listen to",
        "Share of the robustness adapter (TORA).",
        _first(maps.gates_figure),
        pixels=True,
        each=True,
    ),
)


def analysis_pictures(runs: Sequence[Run]) -> tuple[list[Picture], list[str]]:
    """The figures of all analyses that were run, and a sentence about each that cannot be drawn."""
    pictures, problems = [], []
    for kind, results, name in _wanted(runs):
        try:
            pictures.append(_picture(kind, results, name=name))
        except (HoldfastError, KeyError, IndexError, ValueError, TypeError) as error:  # results of another version
            problems.append(f"{kind.title} ({', '.join(r.label for r in results)}): not drawn, {error}")
    return pictures, problems


def _wanted(runs: Sequence[Run]) -> Iterator[tuple[Kind, list[Result], str]]:
    """What each figure shows: never results of different images together."""
    found = [replace(result, header={**result.header, "label": run.name}) for run in runs for result in run.results]
    for kind in KINDS:
        same: dict[str, list[Result]] = {}
        for result in found:
            if result.kind == kind.name:
                same.setdefault(str(result.header.get("data_fingerprint", result.header.get("data"))), []).append(
                    result
                )
        groups = [[result] for results in same.values() for result in results] if kind.each else list(same.values())
        for number, results in enumerate(groups):
            yield kind, results, f"analysis-{kind.name}-{number}"


def _images(result: Result) -> str:
    return str(result.header.get("data_fingerprint", result.header.get("data")))


def _picture(kind: Kind, results: list[Result], *, name: str) -> Picture:
    title = f"{kind.title} – {results[0].label}" if kind.each else kind.title
    caption = f"{kind.caption} Images: {results[0].header.get('data', 'unknown')}."
    if kind.pixels:
        return png_picture(lambda: kind.draw(results), name=name, title=title, caption=caption, aside=kind.each)
    return svg_picture(lambda: kind.draw(results), name=name, title=title, caption=caption, wide=kind.panels)
