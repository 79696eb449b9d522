"""Which images belong together: recordings, cities and weather, as the names of images tell.

Frames of one recording are alike, so an interval that takes them for independent is too narrow: CamVid's are left out
in blocks of consecutive frames (:mod:`holdfast.metrics.jackknife`). Cityscapes' are seconds of driving apart.
"""

import re
from collections.abc import Sequence
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
        block: consecutive images that belong together; 1 takes every image for itself.
    """

    what: str
    pattern: re.Pattern[str]
    block: int = 1


INDEPENDENT = "scenes/"  # generated independently of each other
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
