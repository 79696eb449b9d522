"""Segmentation scores from pixel counts: IoU, pixel accuracy, boundary IoU, and the papers' averages.

An image is recorded as three counts per class: pixels of the class, pixels predicted as it, and their intersection.
Every score is a function of their sums (or means) over images, so scores, intervals and paired comparisons do not
need the predictions. Pixels with label 255 are ignored. Functions take counts (…, 3, classes): true, predicted, both.
"""

import math
from collections.abc import Mapping, Sequence

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.benchmarks import BENCHMARKS
from holdfast.cells import corruption_cell
from holdfast.errors import HoldfastError
from holdfast.metrics.corruption import Values, mean_of

IGNORED = 255
BANDS = (2, 4, 8, 16)  # distances from the label boundary in pixels; a last band holds the pixels beyond
BOUNDARY_SHARE = 0.02  # of the diagonal, Cheng et al. 2021

GROUPS = BENCHMARKS["cityscapes-c"].groups
KINDS = BENCHMARKS["cityscapes-c"].kinds
SEVERITY_RULES = {
    "paper": BENCHMARKS["cityscapes-c"].cells,
    "fan-released": BENCHMARKS["cityscapes-c-fan-released"].cells,
    "all": BENCHMARKS["cityscapes-c-all"].cells,
}


# ---------------------------------------------------------------------- counting


def pixel_counts(predicted: np.ndarray, true: np.ndarray, *, classes: int) -> NDArray[np.int64]:
    """Count the labelled pixels of each class, those predicted as it, and the intersection: (3, classes).

    Args:
        predicted: class indices (H, W).
        true: class indices (H, W), 255 for ignored pixels.
        classes: number of classes.
    """
    _check_maps(predicted, true)
    labelled = true != IGNORED
    seen, known = predicted[labelled].astype(np.int64), true[labelled].astype(np.int64)
    both = known[seen == known]
    return np.stack([np.bincount(values, minlength=classes)[:classes] for values in (known, seen, both)])


def band_counts(predicted: np.ndarray, true: np.ndarray, *, classes: int, bands: Sequence[int] = BANDS) -> np.ndarray:
    """Pixel counts by distance to the label boundary, (bands + 1, 3, classes): up to 2 pixels, up to 4, …, beyond.

    The distance (Chebyshev: rows, columns and diagonals alike) is to the nearest pixel with another label, ignored ones
    included; the image border is no boundary.
    """
    _check_maps(predicted, true)
    inner = np.zeros(true.shape, bool)
    counts = []
    for distance in bands:
        near = near_boundary(true, distance)
        counts.append(_counts_where(predicted, true, near & ~inner, classes=classes))
        inner = near
    return np.stack([*counts, _counts_where(predicted, true, ~inner, classes=classes)])


def boundary_counts(predicted: np.ndarray, true: np.ndarray, *, classes: int) -> NDArray[np.int64]:
    """Pixel counts of Boundary IoU (Cheng et al. 2021): each map's pixels near its own contours, (3, classes).

    The contour region of a class is its pixels up to 2 % of the image diagonal from its edge, image border included.
    Ignored pixels belong to no class in either map.
    """
    _check_maps(predicted, true)
    distance = boundary_distance(true.shape)
    seen = np.where(true == IGNORED, IGNORED, predicted).astype(np.uint8)
    known = true.astype(np.uint8)
    regions = [
        np.where(near_boundary(labels, distance, border=True), labels, IGNORED).astype(np.int64)
        for labels in (known, seen)
    ]
    both = regions[0][regions[0] == regions[1]]
    return np.stack([np.bincount(values.ravel(), minlength=IGNORED + 1)[:classes] for values in (*regions, both)])


def boundary_distance(size: tuple[int, ...]) -> int:
    """Width of the contour region: 2 % of the image diagonal in pixels, at least 1."""
    return max(1, round(BOUNDARY_SHARE * math.hypot(*size)))


def near_boundary(labels: np.ndarray, distance: int, *, border: bool = False) -> NDArray[np.bool_]:
    """Mask of pixels with another label at most ``distance`` away; ``border`` treats the outside as another label."""
    around = labels.astype(np.uint8)
    if border:
        around = cv2.copyMakeBorder(
            around, distance, distance, distance, distance, cv2.BORDER_CONSTANT, value=IGNORED - 1
        )
    # a pixel whose neighbourhood has a maximum or minimum other than its own label has another label in reach
    square = np.ones((2 * distance + 1, 2 * distance + 1), np.uint8)
    differs = (cv2.dilate(around, square) != around) | (cv2.erode(around, square) != around)
    return differs[distance:-distance, distance:-distance] if border else differs


# ---------------------------------------------------------------------- scores


def class_iou(counts: ArrayLike) -> NDArray[np.float64]:
    """Intersection over union per class, (…, classes); NaN for a class that is neither true nor predicted."""
    true, predicted, both = _parts(counts)
    return _ratio(both, true + predicted - both)


def mean_iou(counts: ArrayLike) -> NDArray[np.float64]:
    """mIoU of pooled counts: the mean IoU over the classes that are true or predicted somewhere.

    A class that is predicted but never true counts as 0. This is the published score; the mean of per-image mIoU
    differs.
    """
    return _mean_of_known(class_iou(counts))


def pixel_accuracy(counts: ArrayLike) -> NDArray[np.float64]:
    """Fraction of labelled pixels that are predicted correctly (aAcc)."""
    true, _, both = _parts(counts)
    return _ratio(both.sum(axis=-1), true.sum(axis=-1))


def class_accuracy(counts: ArrayLike) -> NDArray[np.float64]:
    """Fraction of each class's pixels that are predicted correctly; NaN for a class that is never true."""
    true, _, both = _parts(counts)
    return _ratio(both, true)


def mean_accuracy(counts: ArrayLike) -> NDArray[np.float64]:
    """Mean of `class_accuracy` over the classes that are true somewhere (mAcc)."""
    return _mean_of_known(class_accuracy(counts))


# ---------------------------------------------------------------------- the papers' averages


def kind_means(mious: Mapping[str, Values], *, rule: str = "paper", rounded: bool = True) -> dict[str, Values]:
    """Mean mIoU over each kind's severities, in percent.

    Args:
        mious: mIoU in percent by cell such as ``fog/3``; numbers, or arrays of replicates.
        rule: ``paper`` (noise 1–3, others 1–5), ``fan-released`` (1–3 for all) or ``all`` (1–5 for all).
        rounded: round each cell to 0.01 first, as the released testers print values and then average them.
    """
    wanted = severity_rule(rule)
    missing = [cell for kind in wanted for cell in cells_of(kind, rule=rule) if cell not in mious]
    if missing:
        raise HoldfastError(
            f"mious must have all cells of Cityscapes-C, but these are missing: {', '.join(missing[:5])}"
        )
    used = {name: np.round(value, 2) if rounded else value for name, value in mious.items()}
    return {kind: mean_of([used[cell] for cell in cells_of(kind, rule=rule)]) for kind in wanted}


def cityscapes_c_mean(mious: Mapping[str, Values], *, rule: str = "paper", rounded: bool = True) -> Values:
    """Mean mIoU of Cityscapes-C: over severities, then over the 16 kinds (FAN Table 9, TAP+ADL Table 4)."""
    return mean_of(list(kind_means(mious, rule=rule, rounded=rounded).values()))


def group_means(mious: Mapping[str, Values], *, rule: str = "paper", rounded: bool = True) -> dict[str, Values]:
    """Mean over the kinds of each group of the papers' tables: blur, noise, digital, weather."""
    kinds = kind_means(mious, rule=rule, rounded=rounded)
    return {group: mean_of([kinds[kind] for kind in members]) for group, members in GROUPS.items()}


def severity_rule(rule: str) -> Mapping[str, tuple[int, ...]]:
    """Severities of every kind that a rule averages."""
    if rule not in SEVERITY_RULES:
        raise HoldfastError(f"rule must be one of {', '.join(SEVERITY_RULES)}, got {rule!r}")
    return SEVERITY_RULES[rule]


def cells_of(kind: str, *, rule: str) -> tuple[str, ...]:
    """Names of the cells of one kind that a rule averages."""
    return tuple(corruption_cell(kind, severity).name for severity in severity_rule(rule)[kind])


def _counts_where(predicted: np.ndarray, true: np.ndarray, where: np.ndarray, *, classes: int) -> NDArray[np.int64]:
    return pixel_counts(predicted, np.where(where, true, IGNORED), classes=classes)


def _parts(counts: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    array = np.asarray(counts, dtype=np.float64)
    if array.ndim < 2 or array.shape[-2] != 3:
        raise HoldfastError(f"counts must be (…, 3, classes): true, predicted, both; got shape {array.shape}")
    return array[..., 0, :], array[..., 1, :], array[..., 2, :]


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=whole > 0)


def _mean_of_known(values: NDArray[np.float64]) -> NDArray[np.float64]:
    known = ~np.isnan(values)
    return _ratio(np.where(known, values, 0.0).sum(axis=-1), known.sum(axis=-1).astype(np.float64))


def _check_maps(predicted: np.ndarray, true: np.ndarray) -> None:
    if predicted.shape != true.shape or true.ndim != 2:
        raise HoldfastError(
            f"predicted and true must be maps (H, W) of the same size, got {predicted.shape} and {true.shape}"
        )
