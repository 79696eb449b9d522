"""What is evaluated on: a source of pictures, or a stored set."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from holdfast.data import Source, Subset, open_data
from holdfast.data.stored import OfficialSet, check_imagenet_order, is_official, open_official
from holdfast.data.tensors import as_source
from holdfast.evaluation.cells import limited
from holdfast.names import file_name
from holdfast.records.contents import content_of_files, content_of_sample, spread
from holdfast.tasks import Task, task_of

WNID = re.compile(r"n\d{8}")
OFFICIAL, ON_THE_FLY = "official", "on-the-fly"
SAMPLED_CELLS = 16  # of a stored set, whose contents are looked at


@dataclass(frozen=True)
class EvaluationData:
    """What is evaluated on.

    Attributes:
        spec: how the records name it.
        label: the same as part of a folder's name.
        source: pictures to work on, or None for stored sets.
        stored: a stored set, or None.
    """

    spec: str
    label: str
    source: Source | None = None
    stored: OfficialSet | None = None

    @cached_property
    def pictures(self) -> Any:
        """The source itself, or the first cell of a stored set, to learn what its images are like; opened once."""
        return self.source if self.stored is None else self.stored.open(self.stored.cells[0])

    @property
    def content(self) -> str:
        """A digest of the files, see :mod:`holdfast.records.contents`; of stored sets a sample of some cells."""
        if self.stored is None:
            return content_of_files(self.source)
        return content_of_sample([self.stored.open(cell) for cell in spread(self.stored.cells, SAMPLED_CELLS)])

    @property
    def task(self) -> Task:
        """What an answer to these data is."""
        return task_of(self.pictures)

    @property
    def protocol(self) -> str:
        """``official``, how our own ``holdfast corrupt`` made it, or ``on-the-fly``."""
        return (self.stored.made or OFFICIAL) if self.stored is not None else ON_THE_FLY


def open_evaluation_data(
    data: Any,
    *,
    limit: int | None = None,
    exif: str = "ignore",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> EvaluationData:
    """Open a data spec, or take what was handed over; of data with several splits the test split, unless it says."""
    if not isinstance(data, str):
        source = as_source(data, mean=mean, std=std)
        name = str(getattr(source, "name", type(source).__name__))
        return EvaluationData(name, _slug(name), source=_first(source, limit))
    if is_official(data):
        return EvaluationData(data, _slug(data), stored=open_official(data))
    source = open_data(data, split="test", exif=exif)
    if all(WNID.fullmatch(name) for name in source.classes):  # ImageNet's own folders: their ranks must be its classes
        check_imagenet_order(source.classes, name=data)
    return EvaluationData(data, _slug(data), source=_first(source, limit))


def _first(source: Source, limit: int | None) -> Source:
    if limit is None:
        return source
    ids = [source.id(index) for index in range(len(source))]
    rows = limited(ids, task_of(source).strata(source), limit)
    return source if len(rows) == len(source) else Subset(source, rows)


def _slug(spec: str) -> str:
    name, _, rest = spec.partition(":")
    words = [name, *([Path(rest).stem] if rest else [])]
    return file_name("-".join(words)).strip("-.")
