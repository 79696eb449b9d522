"""Filmstrip of the lab: thumbnails by class and domain, or of images whose predictions flip in the records."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holdfast.data.domains import domain_of
from holdfast.data.source import UnreadableImage
from holdfast.errors import HoldfastError
from holdfast.lab.opened_model import OpenedModel
from holdfast.plotting import annotate
from holdfast.records.records import CellRecord, Records, load_records

PAGE = 12
THUMBNAIL = 64


@dataclass(frozen=True)
class Thumbnail:
    """One image of the filmstrip: index, id, class, thumbnail, and the fraction of flipped predictions."""

    number: int
    name: str
    label: str
    url: str
    flips: str = ""


def fitting_records(opened: OpenedModel) -> Records | None:
    """Return the run's records of this model, preprocessing and data with the most cells; None without any."""
    if opened.folder is None or not (all_records := load_records(opened.folder)):
        return None
    same = {"model_fingerprint": opened.judge.identify(opened.model)[0], "preprocessing": opened.steps.record()}
    known = {opened.source.id(number) for number in range(len(opened.source))}
    fitting = [
        records
        for records in all_records
        if same.items() <= records.header.items()
        and "clean" in records.cells
        and known & set(records.cells["clean"].ids.tolist())
    ]
    return max(fitting, key=lambda records: len(records.cells), default=None)


def as_recorded(models: Sequence[OpenedModel]) -> list[OpenedModel]:
    """Give the models the seed of the first matching records, if there are any."""
    found = (records for opened in models if (records := fitting_records(opened)) is not None)
    seed = next((int(records.header.get("seed", 0)) for records in found), None)
    return [opened if seed is None else replace(opened, seed=seed) for opened in models]


def hardest(records: Records, severity: int) -> list[tuple[str, float]]:
    """Ids of images whose predictions flip under corruptions up to a severity, with the fraction of such cells.

    The hardest come first. For tasks other than classification, the drop of the image's score counts.
    """
    clean = records.cells["clean"]
    cells = [c for c in records.cells.values() if c.spec.family == "corruption" and c.spec.severity <= severity]
    if not cells:
        return []
    mean = np.mean([_changed_predictions(clean, cell) for cell in cells], axis=0)
    order = [number for number in np.argsort(-mean, kind="stable").tolist() if mean[number] > 0]
    return [(str(clean.ids[number]), float(mean[number])) for number in order]


def _changed_predictions(clean: CellRecord, cell: CellRecord) -> np.ndarray:
    if "predictions" in clean.fields:
        return np.asarray(clean.predictions != cell.predictions, dtype=float)
    return np.maximum(clean.right - cell.right, 0)


Flips = Sequence[tuple[str, float]]  # ids and fractions, see `hardest`


def chosen_numbers(
    opened: OpenedModel, *, label: int | None, flips: Flips | None, domain: int | None = None
) -> list[tuple[int, str]]:
    """Indices of the images to show, with the text below each thumbnail."""
    numbers = {opened.source.id(number): number for number in range(len(opened.source))}
    if flips is not None:
        listed = [(numbers[name], f"{100 * share:.0f} %") for name, share in flips if name in numbers]
    else:
        listed = [(number, "") for number in numbers.values()]
    if domain is not None:
        if not 0 <= domain < len(opened.domains):
            raise HoldfastError(f"domain must be one of the {len(opened.domains)} of these data, got {domain}")
        name = opened.domains[domain]
        listed = [(number, caption) for number, caption in listed if domain_of(opened.source.id(number)) == name]
    if label is None:
        return listed
    if not _labelled(opened) or not 0 <= label < len(opened.classes):
        raise HoldfastError(f"class must be one of the {len(opened.classes)} of these data, got {label}")
    return [(number, caption) for number, caption in listed if int(opened.source.targets[number]) == label]


def strip(opened: OpenedModel, listed: Sequence[tuple[int, str]], *, page: int) -> list[Thumbnail]:
    """Thumbnails of one page of the filmstrip."""
    return [_thumbnail(opened, number, caption) for number, caption in listed[page * PAGE : (page + 1) * PAGE]]


def _labelled(opened: OpenedModel) -> bool:
    """Whether every image has one class that is known."""
    return opened.task.scoring.one_class and not opened.without_labels


def _thumbnail(opened: OpenedModel, number: int, caption: str) -> Thumbnail:
    target: Any = opened.source.targets[number] if _labelled(opened) else None
    label = opened.classes[int(target)] if target is not None else ""
    try:
        image = np.array(opened.source.image(number).convert("RGB"))
    except UnreadableImage:
        image = np.zeros((THUMBNAIL, THUMBNAIL, 3), np.uint8)
    return Thumbnail(
        number, opened.source.id(number), label, annotate.data_url(annotate.shrunk(image, most=THUMBNAIL)), caption
    )
