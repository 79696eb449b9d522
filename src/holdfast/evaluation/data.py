"""Evaluation data: a source of images, or a stored robustness set, with labels matched to the model's classes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.data import Source, Subset, open_data
from holdfast.data.class_labels import Relabelled, by_index, by_name, of_folders
from holdfast.data.class_maps import (
    RESTRICTED,
    ClassMap,
    ClassMapSpec,
    Outputs,
    one_to_one,
    open_class_map,
    shipped_map,
    wnid_map,
)
from holdfast.data.content_digest import content_of_files, content_of_sample, spread
from holdfast.data.domains import strata_of_domains
from holdfast.data.imagenet_classes import COUNT as IMAGENET
from holdfast.data.imagenet_classes import are_wnids
from holdfast.data.official_sets import OfficialSet, check_imagenet_order, is_official, open_official
from holdfast.data.source import are_integers
from holdfast.data.torch_datasets import as_source
from holdfast.errors import HoldfastError
from holdfast.evaluation.plan import limit_rows
from holdfast.io.validation import file_name
from holdfast.tasks import Task, task_of

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
        labels: rule by which class folders got their labels, see `holdfast.data.class_labels`; empty where all
            rules agree.
        class_map: the outputs of the model that are its classes; None if all outputs are.
    """

    spec: str
    label: str
    source: Source | None = None
    stored: OfficialSet | None = None
    labels: str = ""
    class_map: ClassMap | None = None

    @cached_property
    def pictures(self) -> Any:
        """The source, or the first cell of a stored set as a sample of its images; opened once."""
        return self.source if self.stored is None else self.stored.open(self.stored.cells[0])

    @property
    def content(self) -> str:
        """Digest of the files, see `holdfast.data.content_digest`; for stored sets of a sample of cells."""
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
    if are_wnids(source.classes):  # ImageNet's own folders: their ranks must be its classes
        check_imagenet_order(source.classes, name=data)
    return EvaluationData(data, _slug(data), source=_first(source, limit))


def with_model_labels(
    data: EvaluationData,
    known: tuple[str, ...] | None,
    answers: Mapping[str, Any],
    *,
    match_names: bool = True,
    class_map: ClassMapSpec | None = None,
    classes: str | None = None,
) -> EvaluationData:
    """Map the labels of the data to the model's classes.

    Args:
        data: the opened data, whose labels are the ranks of the class folders.
        known: names of the model's classes, if known.
        answers: the model's outputs for one image, which give its number of classes.
        match_names: whether to match class folders with the model's classes by name.
        class_map: the outputs that are the data's classes, if given.
        classes: ``restricted`` to the data's classes or ``all`` of the model's; None for the rule's own choice.
    """
    first = next(iter(answers.values()))
    if not data.task.scoring.one_class and (class_map is not None or classes is not None):
        raise HoldfastError(
            f"class_map and classes apply to classification only, but {data.spec!r} is {data.task.name}"
        )
    if not data.task.scoring.one_class or getattr(first, "ndim", 0) != 2:
        return data
    outputs = Outputs(first.shape[1], known)
    chosen = _mapping(data, outputs, given=class_map, classes=classes)
    if chosen is not None:
        rule = "map" if class_map is not None else chosen.name if data.stored is None else ""
        return _with_class_map(data, chosen, rule=rule)
    if data.stored is not None:
        return _stored_by_name(data, data.stored, known if match_names else None)
    source, rule = _label_source(_unlabelled(data), known, outputs=outputs.count, match_names=match_names)
    if not isinstance(source, Relabelled) or len(source.labels) >= outputs.count:
        return replace(data, source=source, labels=rule)
    found = one_to_one(rule, source.source.classes, outputs, source.labels, restricted=classes == RESTRICTED)
    return _with_class_map(data, found, rule=rule)


def _mapping(
    data: EvaluationData, outputs: Outputs, *, given: ClassMapSpec | None, classes: str | None
) -> ClassMap | None:
    """The class map that was given, or that follows from a benchmark or from wnid folders."""
    restricted = classes in (None, RESTRICTED)
    if given is not None:
        return open_class_map(given, outputs, restricted=restricted)
    names = _unlabelled(data).classes
    if data.stored is not None and data.stored.restricted_to is not None and outputs.count == IMAGENET:
        return shipped_map(data.stored.restricted_to, outputs, restricted=restricted)
    if not outputs.of_imagenet or len(names) >= outputs.count:
        return None
    if not are_wnids(names) or set(names) <= set(outputs.names or ()):
        return None
    return wnid_map(names, outputs, data=data.spec, restricted=restricted)


def _with_class_map(data: EvaluationData, class_map: ClassMap, *, rule: str) -> EvaluationData:
    """Label the data by the answers of a class map."""
    labels = class_map.labels_of(_unlabelled(data).classes)

    def relabel(source: Any) -> Any:
        same = source.classes == class_map.answers and (labels == np.arange(len(labels))).all()
        return source if same else Relabelled(source, class_map.answers, labels)

    if data.stored is None:
        return replace(data, source=relabel(_unlabelled(data)), labels=rule, class_map=class_map)
    reader = data.stored.reader
    stored = replace(data.stored, reader=lambda cell: relabel(reader(cell)))
    return replace(data, stored=stored, labels=rule, class_map=class_map)


def _unlabelled(data: EvaluationData) -> Any:
    """The images without the labels of another model."""
    pictures = data.pictures
    return pictures.source if isinstance(pictures, Relabelled) else pictures


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
    rows = limit_rows(ids, strata_of_domains(source, task_of(source).evaluation.strata(source)), limit)
    return source if len(rows) == len(source) else Subset(source, rows)


def _slug(spec: str) -> str:
    name, _, rest = spec.partition(":")
    words = [name, *([Path(rest).stem] if rest else [])]
    return file_name("-".join(words)).strip("-.")
