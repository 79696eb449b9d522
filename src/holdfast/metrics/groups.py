"""Which images belong together: recordings, cities and weather, as the names of images tell.

Frames of one recording are alike, so an interval that draws them one by one is too narrow: CamVid's are drawn in moving
blocks of consecutive frames (Künsch 1989). Cityscapes' are seconds of driving apart and drawn one by one.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Names = Sequence[str] | NDArray[np.str_]


@dataclass(frozen=True)
class Grouping:
    """How the names of one data set tell what belongs together.

    Attributes:
        what: a recording, a city, a condition.
        pattern: its first group is the name.
        block: consecutive images that are drawn together; 1 draws images one by one.
    """

    what: str
    pattern: re.Pattern[str]
    block: int = 1


INDEPENDENT = "scenes/"  # drawn independently of each other
GROUPINGS = (
    Grouping("condition", re.compile(r"^(fog|night|rain|snow)/(?:train|val|test)/")),  # ACDC
    Grouping("city", re.compile(r"^(?:train|val|test)/([a-z-]+)/\1_\d{6}_\d{6}$")),  # Cityscapes
    Grouping("recording", re.compile(r"^(?:train|val|test)/(0001TP|0006R0|0016E5|Seq05VD)_"), block=10),  # CamVid
)


def grouping_of(ids: Names) -> Grouping | None:
    """The grouping that all these names follow, if there is one."""
    return next((one for one in GROUPINGS if len(ids) and all(one.pattern.match(str(id)) for id in ids)), None)


def groups_of(ids: Names, grouping: Grouping) -> NDArray[np.str_]:
    """The group of every image."""
    return np.array([grouping.pattern.match(str(id))[1] for id in ids])


def block_drawing(ids: Names) -> Callable[[np.random.Generator], NDArray[np.int64]] | None:
    """How these images are drawn for an interval: in moving blocks where frames are alike; None for one by one."""
    grouping = grouping_of(ids)
    if grouping is None or grouping.block == 1:
        return None
    groups, length = groups_of(ids, grouping), grouping.block
    return lambda rng: block_draw(groups, length, rng=rng)


def drawn_times(ids: Names, *, resamples: int, seed: int) -> NDArray[np.int64]:
    """How often every image is drawn, (1 + resamples, images): first all of them once, then as they are drawn."""
    rng, draw, count = np.random.default_rng(seed), block_drawing(ids), len(ids)
    one_by_one = lambda: np.bincount(rng.integers(count, size=count), minlength=count)  # noqa: E731
    drawn = [draw(rng) if draw is not None else one_by_one() for _ in range(resamples)]
    return np.stack([np.ones(count, np.int64), *drawn])


def drawing_words(ids: Names, *, film: bool) -> str:
    """The same in words, for what stands below a table; ``film`` warns where images may be frames of a recording."""
    grouping = grouping_of(ids)
    if grouping is None or grouping.block == 1:
        alike = film and grouping is None and not all(str(id).startswith(INDEPENDENT) for id in ids)
        return "intervals draw images one by one: too narrow if they are frames of a recording" if alike else ""
    return f"intervals draw moving blocks of {grouping.block} consecutive frames within each {grouping.what}"


def block_draw(groups: NDArray[np.str_], length: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
    """How often every image is drawn: in each group as many images as it has, in stretches of ``length`` in a row.

    Stretches begin anywhere that leaves room for them, and the last one is cut where the group is full.
    """
    times = np.zeros(len(groups), np.int64)
    for group in dict.fromkeys(groups.tolist()):
        members = np.flatnonzero(groups == group)
        size = min(length, len(members))
        starts = rng.integers(len(members) - size + 1, size=-(-len(members) // size))
        drawn = (starts[:, None] + np.arange(size)).ravel()[: len(members)]
        np.add.at(times, members[drawn], 1)
    return times
