"""Which class of the data a detector's class number means: a rank, or a category id, of which COCO's have gaps.

COCO numbers its 80 categories from 1 to 90. Some detectors answer with ranks (0 to 79, torchvision's own from 1),
others with the ids themselves, so that they have 91 classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.errors import HoldfastError

CLASS_IDS = {
    "ranks": "classes are counted without gaps, in the order of the category ids",
    "category-ids": "class numbers are the category ids themselves",
}


@dataclass(frozen=True)
class ClassNumbers:
    """The labels of class numbers, counted from 1.

    Attributes:
        first: the number of the first class, where they are ranks.
        count: how many classes the data have; None where there are no data.
        ids: the data's category ids, where the numbers are such.
    """

    first: int = 0
    count: int | None = None
    ids: tuple[int, ...] | None = None

    def labels(self, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Labels of some class numbers, and which of them the data have; a number beyond all classes is refused."""
        low, high = (0, max(self.ids)) if self.ids is not None else (self.first, self._last)
        wrong = classes[(classes < low) | (classes > high)] if high is not None else classes[classes < low]
        if len(wrong):
            upper = f" to {high}" if high is not None else " or more"
            raise HoldfastError(
                f"classes must be numbers {low}{upper}, got {int(wrong[0])}; nothing was recorded for it"
            )
        if self.ids is None:
            return classes + 1 - self.first, torch.ones_like(classes, dtype=torch.bool)
        ranks = torch.zeros(max(self.ids) + 1, dtype=torch.int64)
        ranks[list(self.ids)] = torch.arange(1, len(self.ids) + 1)
        found = ranks[classes]
        return found, found > 0

    @property
    def _last(self) -> int | None:
        return None if self.count is None else self.first + self.count - 1


def class_numbers(category_ids: Sequence[int], *, known: int | None, first: int, asked: str | None) -> ClassNumbers:
    """How a detector's class numbers are to be read.

    Args:
        category_ids: of the data, in their order.
        known: how many classes the detector has, where its outputs tell.
        first: the number of its first class, if they are ranks.
        asked: ``ranks`` or ``category-ids``; by the number of classes unless given.
    """
    ids, count = tuple(category_ids), len(category_ids)
    ranks, own = ClassNumbers(first, count), ClassNumbers(first, count, ids)
    if asked is not None:
        if asked == "ranks" and known not in (None, count):
            raise HoldfastError(_refusal(known, ids))
        return ranks if asked == "ranks" else own
    if known is None:
        if first and ids != tuple(range(first, first + count)):
            raise HoldfastError(
                f"the data's {count} category ids have gaps (up to {max(ids)}) and the file does not say whether its "
                "labels are such ids or ranks: give --class-ids category-ids (as torchvision's COCO models) or "
                "--class-ids ranks"
            )
        return ranks
    if known == count:
        return ranks
    if known == max(ids) + 1:
        return own
    raise HoldfastError(_refusal(known, ids))


def _refusal(known: int | None, ids: tuple[int, ...]) -> str:
    return (
        f"the detector must have the {len(ids)} classes of the data (or {max(ids) + 1}, numbered by their category "
        f"ids), got {known}; if it has that many, --outputs names another layout"
    )
