"""Delete-a-group jackknife: every score on all images, and with each group of images left out.

Quenouille 1956, Tukey 1958; with groups of images: Kott 2001. A replicate recomputes the score itself, so one scheme
serves means, ratios, mIoU and AP alike, and it needs no random numbers. All cells and models of the same images use the
same groups, so differences are paired.

Frames of one recording are alike, and an interval that takes them for independent is too narrow: CamVid's are left out
in blocks of consecutive frames. Cityscapes' are seconds of driving apart. The names of images tell recordings apart.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.errors import HoldfastError
from holdfast.published import published

Names = Sequence[str] | NDArray[np.str_]


@dataclass(frozen=True)
class Grouping:
    """Rule that groups the images of one data set by their ids.

    Attributes:
        what: kind of group: recording, city or condition.
        pattern: regular expression of the ids, whose first group is the name.
        block: length of blocks of correlated consecutive images; 1 for independent images; 0 if all images of a group
            are one block.
    """

    what: str
    pattern: re.Pattern[str]
    block: int = 1


INDEPENDENT = "scenes/"  # ids of generated scenes, which are independent of each other
_SHAPE = f"(?:{'|'.join(published('imagenet_16')['classes'])})"  # of cue conflict stimuli
GROUPINGS = (
    Grouping("condition", re.compile(r"^(fog|night|rain|snow)/(?:train|val|test)/")),  # ACDC
    Grouping("city", re.compile(r"^(?:train|val|test)/([a-z-]+)/\1_\d{6}_\d{6}$")),  # Cityscapes
    Grouping("content image", re.compile(rf"^{_SHAPE}/(?:[^/]*_)?({_SHAPE}\d+)-{_SHAPE}\d+\.\w+$"), block=0),
    Grouping("recording", re.compile(r"^(?:train|val|test)/(0001TP|0006R0|0016E5|Seq05VD)_"), block=10),  # CamVid
)


def grouping_of(ids: Names) -> Grouping | None:
    """The grouping that matches all ids, if there is one."""
    return next((one for one in GROUPINGS if len(ids) and all(one.pattern.match(str(id)) for id in ids)), None)


def groups_of(ids: Names, grouping: Grouping) -> NDArray[np.str_]:
    """Name of the group of every image."""
    return np.array([grouping.pattern.match(str(id))[1] for id in ids])


SINGLE_IMAGES = 200  # up to this many images, every image is its own group (delete-one jackknife)
GROUPS = 100  # groups of more images; the t quantile with 99 degrees of freedom is within 1.3 % of the normal one


@dataclass(frozen=True, eq=False)
class Groups:
    """Jackknife groups of images.

    Attributes:
        numbers: group index of every image.
        count: number of groups.
        independent: number of independent observations: images, or blocks of a recording.
        what: description of groups that are blocks of a recording, such as ``blocks of 10 frames``; else empty.
    """

    numbers: NDArray[np.int64]
    count: int
    independent: int
    what: str = ""

    @property
    def images(self) -> int:
        """Number of images in all groups."""
        return len(self.numbers)

    def without(self, group: int) -> NDArray[np.int64]:
        """The images that stay when this group is left out."""
        return np.flatnonzero(self.numbers != group)


def image_groups(ids: Names, targets: ArrayLike | None = None) -> Groups:
    """Make jackknife groups; they depend on the images' ids and classes only, not on their order.

    Up to 200 images, every image is a group. More images are dealt into 100 groups, stratified by class. Consecutive
    frames of a recording are correlated and form blocks.
    """
    names = np.asarray(ids, dtype=np.str_)
    grouping = grouping_of(names)
    if grouping is not None and grouping.block == 0:
        found, numbers = np.unique(groups_of(names, grouping), return_inverse=True)
        return Groups(numbers, len(found), len(found), what=f"the images of one {grouping.what}")
    if grouping is not None and grouping.block > 1:
        return _blocks(names, groups_of(names, grouping), length=grouping.block)
    if len(names) <= SINGLE_IMAGES:
        return Groups(np.arange(len(names)), len(names), len(names))
    classes = np.zeros(len(names)) if targets is None else np.asarray(targets, dtype=np.float64)
    if classes.ndim != 1:  # boxes or label maps: no class to stratify by
        classes = np.zeros(len(names))
    # sorted by class, then dealt round robin: every group gets the same number of each class, give or take one image,
    # so leaving a group out does not change the class balance
    ranks = np.empty(len(names), np.int64)
    ranks[np.lexsort((names, classes))] = np.arange(len(names))
    return Groups(ranks % GROUPS, GROUPS, len(names))


def _blocks(names: NDArray[np.str_], recordings: NDArray[np.str_], *, length: int) -> Groups:
    """Blocks of consecutive frames within each recording, of about equal size."""
    numbers, count = np.empty(len(names), np.int64), 0
    for recording in np.unique(recordings):
        members = np.flatnonzero(recordings == recording)
        members = members[np.argsort(names[members], kind="stable")]
        blocks = max(1, round(len(members) / length))
        numbers[members] = count + np.arange(len(members)) * blocks // len(members)
        count += blocks
    return Groups(numbers, count, count, what=f"blocks of about {length} consecutive frames")


def replicated_means(values: ArrayLike, groups: Groups) -> NDArray[np.float64]:
    """Mean of every column over all images, then without each group: (images, columns) → (1 + groups, columns)."""
    rows = np.asarray(values, dtype=np.float64)
    if len(rows) != groups.images:
        raise HoldfastError(f"values must have a row for each of {groups.images} images, got {len(rows)}")
    sizes = np.bincount(groups.numbers, minlength=groups.count)
    order, there = np.argsort(groups.numbers, kind="stable"), sizes > 0  # a cell may lack the images of a group
    sums = np.zeros((groups.count, *rows.shape[1:]))
    sums[there] = np.add.reduceat(rows[order], (np.cumsum(sizes) - sizes)[there], axis=0)
    with np.errstate(invalid="ignore"):  # 0 / 0 = NaN if there is a single group: leaving it out leaves no image
        left = (sums.sum(axis=0) - sums) / (len(rows) - sizes).reshape(-1, *[1] * (rows.ndim - 1))
    return np.concatenate([rows.mean(axis=0)[None], left])
