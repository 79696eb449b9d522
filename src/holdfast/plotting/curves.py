"""Curves, histograms and box plots shared by the analyses."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.plotting.style import colour, marker

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BANDS = "line: mean over images; band: quartiles"
BOXES = "box: quartiles, line: median, whiskers: 5th and 95th percentile"


def band(axis: "Axes", values: np.ndarray, number: int, label: str, *, places: np.ndarray | None = None) -> None:
    """Plot the mean over images as a line and the quartiles as a band; ``values`` is (images, places)."""
    at = np.arange(1, values.shape[1] + 1) if places is None else places
    low, high = np.nanpercentile(values, [25, 75], axis=0)
    axis.fill_between(at, low, high, color=colour(number), alpha=0.15, linewidth=0)
    axis.plot(at, np.nanmean(values, axis=0), color=colour(number), marker=marker(number), markersize=4, label=label)


def histograms(axis: "Axes", scores: Sequence[np.ndarray], labels: Sequence[str]) -> None:
    """Plot several distributions over the same bins, in percent."""
    known = [each[~np.isnan(each)] for each in scores]
    low = min((float(each.min()) for each in known if each.size), default=0.0)
    edges = np.linspace(min(np.floor(100 * low) / 100, 0.99), 1, 41).tolist()
    for number, (each, label) in enumerate(zip(known, labels, strict=True)):
        if each.size:
            options: dict[str, Any] = {"weights": np.full(each.size, 100 / each.size), "color": colour(number)}
            axis.hist(np.minimum(each, 1), edges, alpha=0.4, label=label, **options)
            axis.hist(np.minimum(each, 1), edges, histtype="step", linewidth=1.2, **options)


def grouped_boxes(axis: "Axes", groups: Mapping[str, Sequence[np.ndarray]], labels: Sequence[str]) -> None:
    """Draw box plots of several models, grouped."""
    width, count = 0.8, len(labels)
    step = count + 1
    for number, label in enumerate(labels):
        values = [np.asarray(group[number]) for group in groups.values()]
        boxes = axis.boxplot(
            values,
            positions=[place * step + number for place in range(len(values))],
            widths=width,
            whis=(5, 95),
            showfliers=False,
            patch_artist=True,
            medianprops={"color": "black"},
            manage_ticks=False,
        )
        for box in boxes["boxes"]:
            box.set(facecolor=colour(number), alpha=0.6)
        boxes["boxes"][0].set_label(label)
    axis.set_xticks([place * step + (count - 1) / 2 for place in range(len(groups))], list(groups))
    axis.set_xlim(-1, (len(groups) - 1) * step + count)


def whole_numbers(axis: "Axes") -> None:
    """Place ticks at integers only, for axes that count layers."""
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
