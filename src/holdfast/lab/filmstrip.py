"""Which images to look at: by class, or those whose answers flip first, as the run's records tell."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holdfast.data.source import UnreadableImage
from holdfast.errors import HoldfastError
from holdfast.lab.opened_model import OpenedModel
from holdfast.plotting import annotate
from holdfast.records.records import CellRecord, Records, load_records

PAGE = 12
THUMBNAIL = 64


@dataclass(frozen=True)
class Thumbnail:
    """One image of the filmstrip: its number, name and class, a small picture, and how often its answer flipped."""

    number: int
    name: str
    label: str
    url: str
    flips: str = ""


def fitting_records(lens: OpenedModel) -> Records | None:
    """The run's records of these images, model and steps, those with the most cells; None if there are none."""
    if lens.folder is None or not (all_records := load_records(lens.folder)):
        return None
    same = {"model_fingerprint": lens.judge.identify(lens.model)[0], "preprocessing": lens.steps.record()}
    known = {lens.source.id(number) for number in range(len(lens.source))}
    fitting = [
        records
        for records in all_records
        if same.items() <= records.header.items()
        and "clean" in records.cells
        and known & set(records.cells["clean"].ids.tolist())
    ]
    return max(fitting, key=lambda records: len(records.cells), default=None)


def as_recorded(lenses: Sequence[OpenedModel]) -> list[OpenedModel]:
    """The same lenses with the draws of the first records that fit, if there are any."""
    found = (records for lens in lenses if (records := fitting_records(lens)) is not None)
    seed = next((int(records.header.get("seed", 0)) for records in found), None)
    return [lens if seed is None else replace(lens, seed=seed) for lens in lenses]


def hardest(records: Records, severity: int) -> list[tuple[str, float]]:
    """Ids of the images whose answers flip under some corruption up to a severity, and in which share of the cells.

    The hardest first. Where an answer is more than a class, the loss of its score counts.
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


Flips = Sequence[tuple[str, float]]  # ids and shares, see `hardest`


def chosen_numbers(lens: OpenedModel, *, label: int | None, flips: Flips | None) -> list[tuple[int, str]]:
    """The numbers of the images to show, with what there is to say about each."""
    numbers = {lens.source.id(number): number for number in range(len(lens.source))}
    if flips is not None:
        listed = [(numbers[name], f"{100 * share:.0f} %") for name, share in flips if name in numbers]
    else:
        listed = [(number, "") for number in numbers.values()]
    if label is None:
        return listed
    if lens.task.name != "classification" or not 0 <= label < len(lens.classes):
        raise HoldfastError(f"class must be one of the {len(lens.classes)} of these data, got {label}")
    return [(number, said) for number, said in listed if int(lens.source.targets[number]) == label]


def strip(lens: OpenedModel, listed: Sequence[tuple[int, str]], *, page: int) -> list[Thumbnail]:
    """One page of the filmstrip."""
    return [_thumbnail(lens, number, said) for number, said in listed[page * PAGE : (page + 1) * PAGE]]


def _thumbnail(lens: OpenedModel, number: int, said: str) -> Thumbnail:
    target: Any = lens.source.targets[number] if lens.task.name == "classification" else None
    label = lens.classes[int(target)] if target is not None else ""
    try:
        image = np.array(lens.source.image(number).convert("RGB"))
    except UnreadableImage:
        image = np.zeros((THUMBNAIL, THUMBNAIL, 3), np.uint8)
    return Thumbnail(
        number, lens.source.id(number), label, annotate.data_url(annotate.shrunk(image, most=THUMBNAIL)), said
    )
