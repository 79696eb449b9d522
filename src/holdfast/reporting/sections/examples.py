"""Failure examples: stored thumbnails with ground truth and the predictions of all models."""

import base64
import io
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from math import fsum
from statistics import pstdev
from typing import Any

from PIL import Image

from holdfast.records.examples import Example, read_examples
from holdfast.reporting.comparable import DataSet, Entry
from holdfast.reporting.formatting import clean_name, kind_label
from holdfast.reporting.sections.reproduce import model_word
from holdfast.tasks import task_named
from holdfast.tasks.examples.base import ExampleView, Kept, encode_picture

Key = tuple[str, str]  # cell and image
MOST, MOST_MODELS = 60, 8
TRUTH = "truth"
LARGEST = 900_000  # bytes of thumbnails per data set on the page


@dataclass(frozen=True)
class Answer:
    """One model's prediction for an example."""

    entry: Entry
    words: str
    right: float
    sure: float = 1.0
    picture: str = ""

    @property
    def verdict(self) -> str:
        """``right``, ``wrong`` or ``partly``."""
        return "right" if self.right >= 0.995 else "wrong" if self.right < 0.5 else "partly"


@dataclass(frozen=True, eq=False)
class ShownExample:
    """One image under one corruption.

    Attributes:
        kind: the corruption.
        severity: its severity, 0 without one.
        truth: the ground truth in words.
        pictures: data URLs by name: the clean image, the image, the ground truth drawn over it.
        answers: the models' predictions.
        lab: command that opens the models and the data in the lab.
    """

    id: str
    kind: str
    severity: int
    truth: str
    pictures: Mapping[str, str]
    answers: Sequence[Answer]
    lab: str = ""

    @property
    def kind_name(self) -> str:
        """Readable name of the corruption."""
        return kind_label(self.kind)

    @property
    def hard(self) -> float:
        """Mean error of the predictions, weighted by their confidence, 0 to 1."""
        return fsum((1 - answer.right) * answer.sure for answer in self.answers) / len(self.answers)

    @property
    def split(self) -> float:
        """Disagreement of the models: standard deviation of their scores."""
        return pstdev(answer.right for answer in self.answers)

    @property
    def bytes(self) -> int:
        """Total size of the pictures in bytes."""
        return sum(map(len, [*self.pictures.values(), *(answer.picture for answer in self.answers)]))

    @property
    def small(self) -> bool:
        """Whether truth and answers are words, so that many examples fit side by side."""
        return TRUTH not in self.pictures


def examples(data: DataSet) -> list[ShownExample]:
    """Select the examples of a data set, hardest first, up to the size limit of a page."""
    drawing = task_named(data.task).drawing
    if drawing is None:
        return []
    models = data.shown_models[:MOST_MODELS]
    stored = {entry: _by_key(_stored_examples(entry)) for entry in models}
    pictures = {key: example for found in stored.values() for key, example in found.items()}
    made = [_show_example(key, example, models, stored, drawing) for key, example in pictures.items()]
    # if predictions are stored only with a model's own examples, take those that all models stored
    least = 1 if drawing.in_records else max((len(each.answers) for each in made), default=0)
    answered = [each for each in made if len(each.answers) >= max(1, least)]
    return _choose_examples(sorted(answered, key=lambda each: (-each.hard, -each.split, each.id)))


def lab_command(entries: Sequence[Entry]) -> str:
    """The command that opens up to two models on their data in the lab."""
    if not entries:
        return ""
    words = [model_word(entry.run, entry.records.header) for entry in entries[:2]]
    return shlex.join(["holdfast", "lab", *words, "--data", str(entries[0].records.header.get("data", ""))])


def _stored_examples(entry: Entry) -> list[Example]:
    records = entry.records
    return read_examples(records.folder, fingerprint=str(records.header.get("fingerprint", "")))


def _by_key(found: Iterable[Example]) -> dict[Key, Example]:
    return {(example.cell, example.id): example for example in found}


def _show_example(key: Key, example: Example, models: Sequence[Entry], stored: Any, drawing: Any) -> ShownExample:
    cell, name = key
    with Image.open(io.BytesIO(example.picture)) as file:
        picture = file.convert("RGB")
    known = [
        (entry, kept) for entry in models if (kept := _recorded_answer(entry, key, stored[entry], drawing)) is not None
    ]
    spec = next((e.records.cells[cell].spec for e, _ in known), None)
    names = _class_names(models)
    truth: ExampleView = drawing.truth(picture, known[0][1], names) if known else ExampleView("")
    answers = [(entry, drawing.answer(picture, kept, names)) for entry, kept in known]
    return ShownExample(
        clean_name(name),
        (spec.kind or spec.family) if spec is not None else cell,
        spec.severity if spec is not None else 0,
        clean_name(truth.words),
        {
            **({"clean": _address(example.clean)} if example.clean else {}),
            "image": _address(example.picture),
            **({TRUTH: _address(encode_picture(truth.picture))} if truth.picture is not None else {}),
        },
        [_answer(entry, view) for entry, view in answers],
        lab_command([entry for entry, _ in known]),
    )


def _recorded_answer(entry: Entry, key: Key, stored: dict[Key, Example], drawing: Any) -> Kept | None:
    """Read truth and prediction from the records, or from the model's stored examples."""
    cell, name = key
    if cell not in entry.records.cells:
        return None
    if not drawing.in_records:
        return stored[key].fields if key in stored else None
    record = entry.records.cells[cell]
    rows = (record.ids == name).nonzero()[0]
    return drawing.recorded_answer(record, int(rows[0])) if len(rows) else None


def _answer(entry: Entry, view: ExampleView) -> Answer:
    picture = _address(encode_picture(view.picture)) if view.picture is not None else ""
    return Answer(entry, clean_name(view.words), view.right, view.sure, picture)


def _class_names(models: Sequence[Entry]) -> Sequence[str]:
    return next((names for entry in models if (names := entry.records.header.get("class_names"))), ())


def _choose_examples(found: Sequence[ShownExample]) -> list[ShownExample]:
    """Choose as many as fit, alternating between the hardest and those with most disagreement."""
    split = sorted((each for each in found if each.split > 0), key=lambda each: -each.split)
    turns = (each for turn in zip_longest(found, split) for each in turn if each is not None)
    wanted = list(dict.fromkeys(turns))[:MOST]
    total = accumulate(each.bytes for each in wanted)
    kept = {each for each, bytes_so_far in zip(wanted, total, strict=True) if bytes_so_far <= LARGEST}
    return [each for each in found if each in kept]


def _address(picture: bytes) -> str:
    kind = "png" if picture.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64," + base64.b64encode(picture).decode("ascii")
