"""Visual grouping: spectral clustering of a block's tokens.

FAN (Zhou et al., ICML 2022), Fig. 1, 4, 9 and App. A.6: tokens through a softmax, their self-correlation as affinity,
spectral clustering. "Self-correlation" is read as P Pᵀ, not centred: as S = Z Zᵀ in Sec. 2.2. The number of groups is
not published; it is a setting here.
"""

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.analysis.base import Analysis, FigureSpec, Found, Page, Results, Tick
from holdfast.analysis.layer_info import layer_name
from holdfast.analysis.results import AnalysisResult
from holdfast.analysis.settings import CELLS, MODULES, PICTURES, Setting, Settings
from holdfast.analysis.token_maps import CELL, STATES, Parts, add, check_image, join_batches, spaced_indices, state_name
from holdfast.errors import HoldfastError
from holdfast.plotting.style import COLOURS, grid_of, new_figure, note, picture, row_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from torch import Tensor

    from holdfast.analysis.probe import Probe


def _check_distinct(name: str, value: Any) -> None:
    if not 2 <= value <= 8:
        raise HoldfastError(f"{name} must lie between 2 and 8, which can be told apart, got {value}")


MOST_TOKENS = 2048  # of one grouping: the affinity and its eigenvectors grow with the square
CLUSTERS = Setting("clusters", 4, "groups of tokens, 2 to 8", int, _check_distinct)


def affinity(tokens: "Tensor") -> "Tensor":
    """S = P Pᵀ with P the tokens after a softmax over their channels, (N, C) → (N, N); nothing is centred."""
    probabilities = tokens.detach().double().softmax(dim=-1)
    return probabilities @ probabilities.mT


def group_tokens(tokens: "Tensor", *, clusters: int) -> np.ndarray:
    """The group of every token, (N, C) → (N,), numbered from 0 by size, the largest first. No random draws."""
    if not 2 <= clusters <= len(tokens):
        raise HoldfastError(f"clusters must lie between 2 and the number of tokens ({len(tokens)}), got {clusters}")
    from sklearn.cluster import SpectralClustering

    from holdfast.analysis.token_features import unit_mean

    # affinities of wide tokens are all near 1/C: the grouping does not depend on scale, but the solver's accuracy does
    matrix = unit_mean(affinity(tokens)).cpu().numpy()
    method = SpectralClustering(clusters, affinity="precomputed", assign_labels="cluster_qr", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an unconnected graph is a clear grouping, not an error
        return by_size(method.fit_predict(matrix))


def sample_grid(grid: tuple[int, int]) -> tuple[int, np.ndarray]:
    """A regular subsample of a grid with at most `MOST_TOKENS` tokens: the step, and their positions.

    Ours: FAN groups 28×28 tokens; a street scene of 1024×2048 pixels has 8,192, of which every second row and column
    is taken.
    """
    places = np.arange(grid[0] * grid[1]).reshape(grid)
    step = 1
    while places[step // 2 :: step, step // 2 :: step].size > MOST_TOKENS:
        step += 1
    return step, places[step // 2 :: step, step // 2 :: step]


def by_size(labels: np.ndarray) -> np.ndarray:
    """The same groups, renumbered: 0 is the largest; of equal ones, the first to appear."""
    names, first, counts = np.unique(labels, return_index=True, return_counts=True)
    order = np.lexsort((first, -counts))
    rank = np.empty(len(names), dtype=np.int64)
    rank[order] = np.arange(len(names))
    return rank[np.searchsorted(names, labels)]


def run(subject: "Probe", settings: Settings, tick: Tick) -> Found:
    """Arrays: ``images/clean``, ``images/corrupted``; ``groups/clean/<module>`` … (images, rows, columns).

    Modules whose output is no grid of enough tokens are left out. Of more than `MOST_TOKENS` tokens every so-many-th
    row and column is grouped, and the header's ``every`` says so.
    """
    from holdfast.analysis.probe import as_bytes
    from holdfast.analysis.token_features import outputs_of

    layouts = subject.layouts(list(settings.modules) or subject.token_blocks)
    places = {name: layout.grid for name, layout in layouts.items() if layout.grid is not None}
    names = [name for name, (rows, columns) in places.items() if rows * columns > settings.clusters]
    if not names:
        raise HoldfastError(f"grouping needs modules with more than {settings.clusters} tokens, found none")
    chosen = [sample_grid(places[name]) for name in names]
    states: dict[str, Any] = {"clean": subject.clean, "corrupted": lambda b: subject.corrupted(b, settings.cells[0])}
    parts: Parts = {}
    for batch in subject.batches(subject.some(settings.pictures)):
        for state, pixels_of in states.items():
            pixels = pixels_of(batch)
            add(parts, f"images/{state}", as_bytes(pixels))
            with outputs_of(subject.inner, names) as seen:
                subject.model(pixels)
            for number, name in enumerate(names):
                kept = chosen[number][1]
                tokens = layouts[name].tokens(seen[name])[:, kept.ravel()]
                groups = [group_tokens(each, clusters=settings.clusters).reshape(kept.shape) for each in tokens]
                add(parts, f"groups/{state}/{number}", np.stack(groups).astype(np.uint8))
        tick(len(batch.ids))
    every = [step for step, _ in chosen]
    return {"modules": names, "clusters": settings.clusters, "cell": settings.cells[0], "every": every}, join_batches(
        parts
    )


# ---------------------------------------------------------------------------------------------- figures


def groups_figure(result: AnalysisResult, *, image: int = 0, blocks: Sequence[int] | None = None) -> "Figure":
    """The groups of tokens of some blocks over the image, clean above and corrupted below (FAN, Fig. 1, 4 and 9)."""
    from matplotlib.colors import ListedColormap

    check_image(result, image)
    names = list(result.header["modules"])
    chosen = list(blocks) if blocks is not None else spaced_indices(len(names), 8)
    asked_for = (result.header.get("settings") or {}).get("modules")
    title = f"{result.label}: {result.header['clusters']} groups of tokens per layer"
    figure = new_figure(CELL * (1 + len(chosen)) + 0.9, CELL * 2 + 0.9, title=title)
    axes = grid_of(figure, 2, 1 + len(chosen))
    colours = ListedColormap(COLOURS[: result.header["clusters"]])
    photographs = [result.arrays[f"images/{state}"][image] for state in STATES]
    for row, state in enumerate(STATES):
        picture(axes[row, 0], photographs[row])
        row_title(axes[row, 0], state_name(result, state))
    for column, block in enumerate(chosen, start=1):
        clean, corrupted = (result.arrays[f"groups/{state}/{block}"][image] for state in STATES)
        for row, groups in enumerate((clean, same_names(corrupted, clean))):
            _groups_over(axes[row, column], photographs[row], groups, colours)
        axes[0, column].set_title(names[block] if asked_for else layer_name(block), fontsize=7)
        axes[1, column].set_xlabel(f"agree {100 * np.mean(same_names(corrupted, clean) == clean):.0f} %", fontsize=8)
    step = max(result.header.get("every") or [1])
    some = f"; every {ordinal(step)} row and column of tokens" if step > 1 else ""
    note(figure, f"colours are groups; agree: tokens that keep their clean group{some}")
    return figure


def ordinal(number: int) -> str:
    """An ordinal number: 2nd, 3rd, 4th …"""
    return str(number) + {2: "nd", 3: "rd"}.get(number, "th")


def same_names(groups: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """The groups, renumbered to agree with ``reference`` on as many tokens as possible."""
    from scipy.optimize import linear_sum_assignment

    count = int(max(groups.max(), reference.max())) + 1
    shared = np.zeros((count, count), dtype=np.int64)
    np.add.at(shared, (groups.ravel(), reference.ravel()), 1)
    return linear_sum_assignment(shared, maximize=True)[1][groups]


def _groups_over(axis: "Axes", photograph: np.ndarray, groups: np.ndarray, colours: "ListedColormap") -> None:
    height, width = photograph.shape[:2]
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    picture(axis, photograph.mean(axis=-1), cmap="gray", vmin=0, vmax=255)
    last = colours.N - 0.5
    axis.imshow(groups, cmap=colours, alpha=0.7, vmin=-0.5, vmax=last, extent=extent, interpolation="none")


def pages(results: Results) -> Iterator[Page]:
    """One figure for each image."""
    for image in range(len(results[0].arrays["images/clean"])):
        yield f"groups-{image + 1}", partial(groups_figure, results[0], image=image)


ANALYSIS = Analysis(
    "grouping",
    "which tokens of a block belong together",
    run,
    settings=(CLUSTERS, MODULES, CELLS, PICTURES),
    ticks=lambda images, settings: min(images, settings.pictures),
    pages=pages,
    compares=False,
    shown=FigureSpec(
        "Which tokens belong together",
        "Groups of tokens, clean above and corrupted below.",
        lambda results: groups_figure(results[0]),
        pixels=True,
        each=True,
    ),
    definition=2,  # until 2, some models' axes and class tokens were taken for others
)
