"""Recordings, cities and conditions of images, parsed from the image ids of known data sets.

Frames of one recording are correlated, so intervals that assume independence are too narrow: CamVid's are left out
in blocks of consecutive frames (:mod:`holdfast.metrics.jackknife`). Cityscapes frames are seconds of driving apart.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Names = Sequence[str] | NDArray[np.str_]


@dataclass(frozen=True)
class Grouping:
    """Rule that groups the images of one data set by their ids.

    Attributes:
        what: kind of group: recording, city or condition.
        pattern: regular expression of the ids, whose first group is the name.
        block: length of blocks of correlated consecutive images; 1 for independent images.
    """

    what: str
    pattern: re.Pattern[str]
    block: int = 1


INDEPENDENT = "scenes/"  # ids of generated scenes, which are independent of each other
GROUPINGS = (
    Grouping("condition", re.compile(r"^(fog|night|rain|snow)/(?:train|val|test)/")),  # ACDC
    Grouping("city", re.compile(r"^(?:train|val|test)/([a-z-]+)/\1_\d{6}_\d{6}$")),  # Cityscapes
    Grouping("recording", re.compile(r"^(?:train|val|test)/(0001TP|0006R0|0016E5|Seq05VD)_"), block=10),  # CamVid
)


def grouping_of(ids: Names) -> Grouping | None:
    """The grouping that matches all ids, if there is one."""
    return next((one for one in GROUPINGS if len(ids) and all(one.pattern.match(str(id)) for id in ids)), None)


def groups_of(ids: Names, grouping: Grouping) -> NDArray[np.str_]:
    """Name of the group of every image."""
    return np.array([grouping.pattern.match(str(id))[1] for id in ids])
