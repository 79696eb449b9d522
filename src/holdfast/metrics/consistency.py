"""Error consistency of two observers: Cohen's κ of being right or wrong on the same images (Geirhos et al. 2020)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.errors import HoldfastError
from holdfast.metrics.intervals import Interval, score_interval
from holdfast.metrics.jackknife import Groups, image_groups, replicated_means
from holdfast.metrics.replicates import in_order, shared_ids
from holdfast.records.class_map import answer_protocol
from holdfast.records.records import CellRecord, Records

FAMILIES = ("clean", "set", "domain", "corruption")  # cells with one answer per image, right or wrong


def kappa(first: ArrayLike, second: ArrayLike, both: ArrayLike) -> NDArray[np.float64]:
    """κ = (c_obs − c_exp) / (1 − c_exp) from two accuracies and the share of images that both answer rightly.

    c_obs is the share of images on which both are right or both wrong, c_exp what independent errors would give; 1 if
    both are always right or always wrong.
    """
    one, other, same = (np.asarray(each, dtype=np.float64) for each in (first, second, both))
    observed = 1 - one - other + 2 * same
    expected = one * other + (1 - one) * (1 - other)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(expected >= 1, 1.0, (observed - expected) / (1 - expected))


def error_consistency(first: Records, second: Records, cell: str = "") -> Interval:
    """κ of two models on the common images of a cell, with its 95 % interval (jackknife over the images).

    Args:
        first: records of one model.
        second: those of another, on the same data with the same choice of answers.
        cell: the cell; by default the first one that both have with one answer per image.
    """
    name = cell or next(iter(consistent_cells(first, second)), "")
    if name not in consistent_cells(first, second):
        raise HoldfastError(
            "error consistency needs a cell of classification with one answer per image that both records have, "
            f"got {cell or 'none'!r}"
        )
    if answer_protocol(first.header) != answer_protocol(second.header):
        raise HoldfastError("error consistency needs records that choose among the same answers")
    one, other = first.cells[name], second.cells[name]
    return consistency_of_cells(one, other, shared_ids({"": one}, {"": other}))


def consistent_cells(first: Records, second: Records) -> list[str]:
    """Cells of both in which every image is answered once, rightly or wrongly."""
    return [
        name
        for name, cell in first.cells.items()
        if name in second.cells
        and cell.spec.family in FAMILIES
        and all(getattr(each.fields.get("predictions"), "ndim", 0) == 1 for each in (cell, second.cells[name]))
    ]


def consistency_of_cells(
    first: CellRecord, second: CellRecord, ids: NDArray[np.str_], groups: Groups | None = None
) -> Interval:
    """κ of two models' records of one cell over some images, and their jackknife groups if these are known."""
    one, other = (in_order(each, ids) for each in (first, second))
    if not np.array_equal(one.targets, other.targets):
        raise HoldfastError("error consistency needs records with the same targets, but some images have another class")
    columns = np.stack([one.right, other.right, one.right * other.right], axis=1)
    groups = groups or image_groups(ids, one.targets)
    means = replicated_means(columns, groups)
    return score_interval(kappa(*means.T), scale="plain", images=groups.independent)
