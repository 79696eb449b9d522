"""Failures to look at: stored thumbnails with the truth and the answers of all models that were asked about them."""

import base64
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from math import fsum
from statistics import pstdev
from typing import Any

from PIL import Image

from holdfast.records.examples import Example, read_examples
from holdfast.reporting.comparable import DataSet, Entry
from holdfast.reporting.formatting import clean_name, kind_label
from holdfast.tasks import task_named
from holdfast.tasks.examples.base import ExampleView, Kept, encode_picture

Key = tuple[str, str]  # cell and image
MOST, MOST_MODELS = 60, 8
LARGEST = 1_400_000  # bytes of pictures on one data set's part of the page


@dataclass(frozen=True)
class Answer:
    """What one model said of it."""

    entry: Entry
    words: str
    right: float
    sure: float = 1.0
    picture: str = ""

    @property
    def verdict(self) -> str:
        """Right, wrong, or something between."""
        return "right" if self.right >= 0.995 else "wrong" if self.right < 0.5 else "partly"


@dataclass(frozen=True, eq=False)
class ShownExample:
    """One image under one corruption.

    Attributes:
        kind: what was done to it; ``severity`` how much, 0 where there is no such thing.
        truth: in words.
        pictures: addresses of the image, and of the truth drawn over it.
        answers: of the models that were asked.
    """

    id: str
    kind: str
    severity: int
    truth: str
    pictures: Sequence[str]
    answers: Sequence[Answer]

    @property
    def kind_name(self) -> str:
        """As people read it."""
        return kind_label(self.kind)

    @property
    def hard(self) -> float:
        """How wrong the answers are on average, and how sure of it, 0 to 1."""
        return fsum((1 - answer.right) * answer.sure for answer in self.answers) / len(self.answers)

    @property
    def split(self) -> float:
        """How much the models differ about it; 0 where they agree."""
        return pstdev(answer.right for answer in self.answers)

    @property
    def bytes(self) -> int:
        """Of all its pictures."""
        return sum(map(len, [*self.pictures, *(answer.picture for answer in self.answers)]))

    @property
    def small(self) -> bool:
        """Whether there is one picture alone, so that many fit side by side."""
        return len(self.pictures) == 1


def examples(data: DataSet) -> list[ShownExample]:
    """The examples of a data set, hardest first, as many as a page can hold."""
    drawing = getattr(task_named(data.task), "examples", None)
    if drawing is None:
        return []
    models = data.shown[:MOST_MODELS]
    stored = {entry: _by_key(_stored_examples(entry)) for entry in models}
    pictures = {key: example for found in stored.values() for key, example in found.items()}
    made = [_show_example(key, example, models, stored, drawing) for key, example in pictures.items()]
    # where a model's answers are kept with its own examples only, those that all models kept
    least = 1 if drawing.in_records else max((len(each.answers) for each in made), default=0)
    answered = [each for each in made if len(each.answers) >= max(1, least)]
    return _choose_examples(sorted(answered, key=lambda each: (-each.hard, -each.split, each.id)))


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
        [_address(example.picture), *([_address(encode_picture(truth.picture))] if truth.picture is not None else [])],
        [_answer(entry, said) for entry, said in answers],
    )


def _recorded_answer(entry: Entry, key: Key, stored: dict[Key, Example], drawing: Any) -> Kept | None:
    """Truth and answer from the records, or from what the model's own examples hold."""
    cell, name = key
    if cell not in entry.records.cells:
        return None
    if not drawing.in_records:
        return stored[key].fields if key in stored else None
    record = entry.records.cells[cell]
    rows = (record.ids == name).nonzero()[0]
    return drawing.recorded_answer(record, int(rows[0])) if len(rows) else None


def _answer(entry: Entry, said: ExampleView) -> Answer:
    picture = _address(encode_picture(said.picture)) if said.picture is not None else ""
    return Answer(entry, clean_name(said.words), said.right, said.sure, picture)


def _class_names(models: Sequence[Entry]) -> Sequence[str]:
    return next((names for entry in models if (names := entry.records.header.get("class_names"))), ())


def _choose_examples(found: Sequence[ShownExample]) -> list[ShownExample]:
    """As many as fit: one from the hardest, one from those that models differ about most, in turn."""
    split = sorted((each for each in found if each.split > 0), key=lambda each: -each.split)
    turns = (each for turn in zip_longest(found, split) for each in turn if each is not None)
    wanted = list(dict.fromkeys(turns))[:MOST]
    total = accumulate(each.bytes for each in wanted)
    kept = {each for each, bytes_so_far in zip(wanted, total, strict=True) if bytes_so_far <= LARGEST}
    return [each for each in found if each in kept]


def _address(picture: bytes) -> str:
    kind = "png" if picture.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64," + base64.b64encode(picture).decode("ascii")
