"""Evaluation data: a source of images, or a stored robustness set, with labels matched to the model's classes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from holdfast.data import Source, Subset, open_data
from holdfast.data.class_labels import Relabelled, by_index, by_name, of_folders
from holdfast.data.content_digest import content_of_files, content_of_sample, spread
from holdfast.data.official_sets import OfficialSet, check_imagenet_order, is_official, open_official
from holdfast.data.source import are_integers
from holdfast.data.torch_datasets import as_source
from holdfast.evaluation.plan import limit_rows
from holdfast.io.validation import file_name
from holdfast.tasks import Task, task_of

WNID = re.compile(r"n\d{8}")
OFFICIAL, ON_THE_FLY = "official", "on-the-fly"
SAMPLED_CELLS = 16  # cells of a stored set whose contents enter the digest


@dataclass(frozen=True)
class EvaluationData:
    """The data of an evaluation.

    Attributes:
        spec: data spec, as in the records.
        label: the spec as part of a folder name.
        source: source of images, or None for stored sets.
        stored: stored robustness set such as ImageNet-C, or None.
        labels: rule by which class folders got their labels, see :mod:`holdfast.data.class_labels`; empty where all
            rules agree.
    """

    spec: str
    label: str
    source: Source | None = None
    stored: OfficialSet | None = None
    labels: str = ""

    @cached_property
    def pictures(self) -> Any:
        """The source, or the first cell of a stored set as a sample of its images; opened once."""
        return self.source if self.stored is None else self.stored.open(self.stored.cells[0])

    @property
    def content(self) -> str:
        """Digest of the files, see :mod:`holdfast.data.content_digest`; for stored sets of a sample of cells."""
        if self.stored is None:
            return content_of_files(self.source)
        return content_of_sample([self.stored.open(cell) for cell in spread(self.stored.cells, SAMPLED_CELLS)])

    @property
    def task(self) -> Task:
        """The task that the data's targets belong to."""
        return task_of(self.pictures)

    @property
    def class_count(self) -> int:
        """Number of classes of the data; the model may have more."""
        pictures = self.pictures
        return len(pictures.labels if isinstance(pictures, Relabelled) else pictures.classes)

    @property
    def protocol(self) -> str:
        """``official``, the label written by ``holdfast corrupt``, or ``on-the-fly``."""
        return (self.stored.origin or OFFICIAL) if self.stored is not None else ON_THE_FLY


def open_evaluation_data(
    data: Any,
    *,
    limit: int | None = None,
    exif: str = "ignore",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> EvaluationData:
    """Open a data spec, or wrap a given source; uses the test split of data with several, unless the spec names one."""
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


def with_model_labels(
    data: EvaluationData, known: tuple[str, ...] | None, answers: Mapping[str, Any], *, match_names: bool = True
) -> EvaluationData:
    """Map the labels of the data to the model's classes.

    Args:
        data: the opened data, whose labels are the ranks of the class folders.
        known: names of the model's classes, if known.
        answers: the model's outputs for one image, which give its number of classes.
        match_names: whether to match class folders with the model's classes by name.
    """
    first = next(iter(answers.values()))
    if not data.task.scoring.one_class or getattr(first, "ndim", 0) != 2:
        return data
    if data.stored is not None:
        return _stored_by_name(data, data.stored, known if match_names else None)
    assert data.source is not None
    source = (
        data.source.source if isinstance(data.source, Relabelled) else data.source
    )  # drop the labels of another model
    source, rule = _label_source(source, known, outputs=first.shape[1], match_names=match_names)
    return replace(data, source=source, labels=rule)


def _label_source(
    source: Source, known: tuple[str, ...] | None, *, outputs: int, match_names: bool
) -> tuple[Source, str]:
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
    """Reorder the labels of a stored set to the model's classes, if the class names are the same."""
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
    rows = limit_rows(ids, task_of(source).evaluation.strata(source), limit)
    return source if len(rows) == len(source) else Subset(source, rows)


def _slug(spec: str) -> str:
    name, _, rest = spec.partition(":")
    words = [name, *([Path(rest).stem] if rest else [])]
    return file_name("-".join(words)).strip("-.")
