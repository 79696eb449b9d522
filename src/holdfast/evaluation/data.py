"""What is evaluated on: a source of pictures, or a stored set."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from holdfast.data import Source, Subset, open_data
from holdfast.data.class_labels import Relabelled, by_index, by_name, of_folders
from holdfast.data.official_sets import OfficialSet, check_imagenet_order, is_official, open_official
from holdfast.data.source import are_integers
from holdfast.data.torch_datasets import as_source
from holdfast.evaluation.plan import limit_rows
from holdfast.io.validation import file_name
from holdfast.records.content_digest import content_of_files, content_of_sample, spread
from holdfast.records.header import CLASSIFICATION
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
        labels: by which rule class folders got their labels, see :mod:`holdfast.data.class_labels`; empty where all
            rules agree.
    """

    spec: str
    label: str
    source: Source | None = None
    stored: OfficialSet | None = None
    labels: str = ""

    @cached_property
    def pictures(self) -> Any:
        """The source itself, or the first cell of a stored set, to learn what its images are like; opened once."""
        return self.source if self.stored is None else self.stored.open(self.stored.cells[0])

    @property
    def content(self) -> str:
        """A digest of the files, see :mod:`holdfast.records.content_digest`; of stored sets a sample of some cells."""
        if self.stored is None:
            return content_of_files(self.source)
        return content_of_sample([self.stored.open(cell) for cell in spread(self.stored.cells, SAMPLED_CELLS)])

    @property
    def task(self) -> Task:
        """What an answer to these data is."""
        return task_of(self.pictures)

    @property
    def class_count(self) -> int:
        """How many classes the data have, of a model's that may be more."""
        pictures = self.pictures
        return len(pictures.labels if isinstance(pictures, Relabelled) else pictures.classes)

    @property
    def protocol(self) -> str:
        """``official``, how our own ``holdfast corrupt`` made it, or ``on-the-fly``."""
        return (self.stored.origin or OFFICIAL) if self.stored is not None else ON_THE_FLY


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


def labelled(
    data: EvaluationData, known: tuple[str, ...] | None, answers: Mapping[str, Any], *, match_names: bool = True
) -> EvaluationData:
    """The data with the labels of the model's classes.

    Args:
        data: as they were opened: labels are ranks.
        known: the names of the model's classes, if it tells.
        answers: what the model says of one image, which tells how many classes it has.
        match_names: whether a class folder is the model's class of that name.
    """
    first = next(iter(answers.values()))
    if data.task.name != CLASSIFICATION or getattr(first, "ndim", 0) != 2:
        return data
    if data.stored is not None:
        return _stored_by_name(data, data.stored, known if match_names else None)
    assert data.source is not None
    source = data.source.source if isinstance(data.source, Relabelled) else data.source  # another model's labels
    source, rule = _labelled(source, known, outputs=first.shape[1], match_names=match_names)
    return replace(data, source=source, labels=rule)


def _labelled(source: Source, known: tuple[str, ...] | None, *, outputs: int, match_names: bool) -> tuple[Source, str]:
    named = by_name(source, known) if known and match_names else None
    if named is not None and named is not source:
        return named, "name"
    folders = of_folders(source)
    numbered = by_index(source, known, outputs=outputs) if folders and named is None else None
    if numbered is not None:
        return numbered, "index"
    rule = "rank" if named is None else "name"
    return source, rule if folders and are_integers(source.classes) else ""


def _stored_by_name(data: EvaluationData, stored: OfficialSet, known: tuple[str, ...] | None) -> EvaluationData:
    """The cells of a stored set in the order of the model's classes, where these are the same."""
    pictures = data.pictures
    if known is None or len(known) != len(pictures.classes) or by_name(pictures, known) in (None, pictures):
        return data
    reader = stored.reader
    return replace(
        data, stored=replace(stored, reader=lambda cell: by_name(reader(cell), known) or reader(cell)), labels="name"
    )


def _first(source: Source, limit: int | None) -> Source:
    if limit is None:
        return source
    ids = [source.id(index) for index in range(len(source))]
    rows = limit_rows(ids, task_of(source).strata(source), limit)
    return source if len(rows) == len(source) else Subset(source, rows)


def _slug(spec: str) -> str:
    name, _, rest = spec.partition(":")
    words = [name, *([Path(rest).stem] if rest else [])]
    return file_name("-".join(words)).strip("-.")
