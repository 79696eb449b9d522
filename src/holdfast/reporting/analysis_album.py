"""Which figures belong to which results: an album of one model, or of several side by side."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from holdfast.analysis.results import KINDS, Result
from holdfast.metrics.intervals import Interval, bootstrap_interval
from holdfast.reporting import analysis_figures as curves
from holdfast.reporting import attention_figures as pictures
from holdfast.reporting.figure_parts import tidy
from holdfast.reporting.figures import Point, cost_scatter

Results = Sequence[Result]
Page = tuple[str, Callable[[], Figure]]  # a file name without ending, and what draws it


def album(results: Results) -> Iterator[Page]:
    """The figures of some results: of one model all there are, of several those that compare."""
    by_kind: Mapping[str, list[Result]] = {kind: [r for r in results if r.kind == kind] for kind in KINDS}
    several = len({result.label for result in results}) > 1
    for kind, mine in by_kind.items():
        if mine:
            yield from (COMPARED if several else SINGLE).get(kind, _nothing)(mine)


def _nothing(results: Results) -> Iterator[Page]:
    yield from ()


# ---------------------------------------------------------------------------------------------- of one or several


def _stability(results: Results) -> Iterator[Page]:
    cell = results[0].header["cells"][0]
    mine = [result for result in results if cell in result.header["cells"]]
    yield "stability-histogram", lambda: curves.stability_histogram(mine, cell)
    yield "stability-layers", lambda: curves.stability_layers(mine, cell)
    if len(mine) > 1 or len(results[0].header["cells"]) > 1:
        yield "stability-boxes", lambda: curves.stability_boxes(mine)
    if len(mine) == 1:
        yield "stability-heads", lambda: curves.stability_heads(mine[0], cell)
    points = retention_points(mine)
    if len(points) > 1:
        yield "retention-cost", lambda: _retention_cost(points)


def _occlusion(results: Results) -> Iterator[Page]:
    yield "occlusion-spread", lambda: curves.occlusion_spread(results)


def _overfocus(results: Results) -> Iterator[Page]:
    yield "overfocus-layers", lambda: curves.overfocus_layers(results)


def _diversity(results: Results) -> Iterator[Page]:
    yield "diversity-layers", lambda: curves.diversity_layers(results)


def _noise_decay(results: Results) -> Iterator[Page]:
    yield "noise-decay", lambda: curves.noise_decay_figure(results)
    if len(results) == 1:
        yield "noise-decay-eigenvalues", lambda: curves.decay_and_eigenvalues(results[0])


def _maps(results: Results) -> Iterator[Page]:
    images = min(len(result.arrays["images/clean"]) for result in results)
    for image in range(images):
        yield f"maps-{image + 1}", partial(pictures.mean_maps, results, image=image)
        if all("query/clean/0" in result.arrays for result in results):
            yield f"query-{image + 1}", partial(pictures.query_overlays, results, image=image)


def _patches(results: Results) -> Iterator[Page]:
    first = results[0].arrays["occluded"]
    same = [result for result in results if np.array_equal(result.arrays["occluded"], first)]
    yield "patches", lambda: pictures.patches_figure(same)


# ---------------------------------------------------------------------------------------------- of one only


def _maps_of_one(results: Results) -> Iterator[Page]:
    yield from _maps(results)
    yield "maps-heads", lambda: pictures.head_grid(results[0])
    yield "maps-layers", lambda: pictures.layer_grid(results[0])


def _each_image(name: str, draw: Callable[..., Figure], key: str = "images") -> Callable[[Results], Iterator[Page]]:
    def pages(results: Results) -> Iterator[Page]:
        for image in range(len(results[0].arrays[key])):
            yield f"{name}-{image + 1}", partial(draw, results[0], image=image)

    return pages


COMPARED: dict[str, Callable[[Results], Iterator[Page]]] = {
    "stability": _stability,
    "occlusion": _occlusion,
    "overfocus": _overfocus,
    "diversity": _diversity,
    "noise-decay": _noise_decay,
    "maps": _maps,
    "patches": _patches,
}
SINGLE: dict[str, Callable[[Results], Iterator[Page]]] = {
    **COMPARED,
    "maps": _maps_of_one,
    "grouping": _each_image("groups", pictures.groups_figure, "images/clean"),
    "dilation": _each_image("dilation", pictures.dilation_figure),
    "gates": _each_image("gates", pictures.gates_figure),
}


def _retention_cost(points: list[Point]) -> Figure:
    figure = cost_scatter(points, cost="GMACs per image")
    for axis in figure.axes:
        tidy(axis, xlabel=axis.get_xlabel(), ylabel=axis.get_ylabel())
        axis.xaxis.set_major_locator(MaxNLocator(5))
    return figure


def retention_points(results: Results) -> list[Point]:
    """Retention (corrupted / clean accuracy, in percent) against GMACs, from stability results whose answers count."""
    points = []
    for number, result in enumerate(results):
        if result.header.get("answers") and result.header.get("cost") and result.arrays["right"][0].any():
            points.append(Point(result.label, number, float(result.header["cost"]["gmacs"]), retention(result)))
    return points


def retention(result: Result) -> Interval:
    """Mean accuracy over the cells / clean accuracy, in percent, with its interval over the images."""
    right = result.arrays["right"].T.astype(np.float64)  # images, 1 + cells

    def kept(means: np.ndarray) -> float:
        return 100 * float(means[1:].mean() / means[0]) if means[0] > 0 else float("nan")

    return bootstrap_interval(right, rng=np.random.default_rng(0), statistic=kept, resamples=1000)
