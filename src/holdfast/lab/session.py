"""A session of the lab: opened models, one image, and what was done to it."""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch

from holdfast.corruptions.severities import SEVERITIES, kind_of
from holdfast.errors import HoldfastError
from holdfast.io.images import decode_bytes
from holdfast.lab import downloads, filmstrip, view_data
from holdfast.lab.edits import Edits, damage_text, parse_edits
from holdfast.lab.inspect import (
    ImagePrediction,
    Inspection,
    LabImage,
    glance,
    inspect_image,
    picture_of,
    probabilities,
    right,
)
from holdfast.lab.opened_model import OpenedModel
from holdfast.lab.templates import fragment
from holdfast.plotting import annotate
from holdfast.records.records import Records

THUMBNAIL = 96
NEARLY, HALF = 0.9, 0.5  # of the score of the image as it is


def sweep(
    lens: OpenedModel, picture: LabImage, kind: str, *, before: ImagePrediction, seed: int | None = None
) -> list[dict[str, Any]]:
    """What the model says of every severity."""
    kind_of(kind)
    return [_swept(lens, picture, Edits(kind, severity, seed), before) for severity in SEVERITIES]


def _swept(lens: OpenedModel, picture: LabImage, step: Edits, before: ImagePrediction) -> dict[str, Any]:
    look = Inspection(lens, picture, (step,), before, glance(lens, picture, (step,)))
    said, state = _answer(look) if lens.task.name == "classification" else _score(look)
    url = annotate.data_url(annotate.shrunk(look.after.bytes, most=THUMBNAIL))
    return {"step": str(step), "said": said, "state": state, "url": url}


def _answer(look: Inspection) -> tuple[str, str]:
    """The class, and whether it is right; where nobody knows that, whether it is the one of the image as it is."""
    view = next(iter(look.after.answers))
    chances, clean = (probabilities(seen.answers[view][0]) for seen in (look.after, look.before))
    score = right(look, look.after, view)
    good = bool(score) if score is not None else chances.argmax() == clean.argmax()
    return f"{look.lens.classes[chances.argmax()]} {100 * chances.max():.0f} %", "good" if good else "bad"


def _score(look: Inspection) -> tuple[str, str]:
    """How well it went, and whether nine tenths, half or less of it are left of the image as it is."""
    view = next(iter(look.after.answers))
    score, clean = (right(look, seen, view) for seen in (look.after, look.before))
    if score is None or not clean:
        return "" if score is None else f"{100 * score:.0f} %", "unknown"
    left = score / clean
    return f"{100 * score:.0f} %", "good" if left >= NEARLY else "fair" if left >= HALF else "bad"


LARGEST_UPLOAD, LARGEST_PICTURE = 16 * 2**20, 16_000_000  # bytes, pixels
UPLOADS, LOOKS = 4, 6  # that are kept
DROPPED = "dropped-"


@dataclass(frozen=True)
class ViewState:
    """What a link holds: numbers and settings, never paths.

    Attributes:
        image: its number in the data, or the name of a dropped picture.
        damage: see `holdfast.lab.edits`.
        layer: whose attention is shown; −1 for the last.
        head: likewise; −1 for the mean of all.
    """

    image: int | str = 0
    damage: str = ""
    layer: int = -1
    head: int = -1


def parse_ask(values: Mapping[str, Any]) -> ViewState:
    """An ask from what a browser sent."""
    image = str(values.get("image", "0"))
    return ViewState(
        image[: len(DROPPED) + 16] if image.startswith(DROPPED) else _whole(image, "image"),
        _text(values.get("do", "")),
        _whole(values.get("layer", -1), "layer"),
        _whole(values.get("head", -1), "head"),
    )


def _whole(value: Any, name: str) -> int:
    try:
        return int(str(value)[:9])
    except ValueError as error:
        raise HoldfastError(f"{name} must be a whole number, got {str(value)[:40]!r}") from error


def _text(value: Any) -> str:
    return damage_text(parse_edits(str(value)[:20_000]))


class Session:
    """One or two models on the same data."""

    def __init__(self, lenses: list[OpenedModel]) -> None:
        self.lenses = lenses
        self._dropped: OrderedDict[str, LabImage] = OrderedDict()
        self._before = lru_cache(LOOKS)(self._first_glance)
        self._look = lru_cache(LOOKS)(self._whole_look)

    # what the page asks

    @torch.no_grad()
    def look(self, ask: ViewState) -> dict[str, Any]:
        """Pictures and answers of every model, and the attention of one layer."""
        steps = [{"step": str(step), "words": step.words} for step in parse_edits(ask.damage)]
        panels = [self._panel(n, ask) for n in self._numbers]
        return {"do": ask.damage, "title": self._title(ask), "steps": steps, "panels": panels}

    @torch.no_grad()
    def inside(self, ask: ViewState) -> dict[str, Any]:
        """What takes a little longer: stability of all layers, channel attention, gates."""
        found = [view_data.inside(self.seen(n, ask), layer=ask.layer, head=ask.head) for n in self._numbers]
        parts = {"html": "inside.html", "more": "more.html"}
        return {"panels": [{name: fragment(part, inside=one) for name, part in parts.items()} for one in found]}

    @torch.no_grad()
    def token(self, ask: ViewState, *, row: float, column: float) -> dict[str, Any]:
        """Where one token looks."""
        options: dict[str, Any] = {"layer": ask.layer, "head": ask.head, "row": row, "column": column}
        return {"panels": [view_data.token_row(self.seen(n, ask), **options) for n in self._numbers]}

    def strip(self, *, label: int | None, severity: int, page: int) -> dict[str, Any]:
        """One page of the filmstrip; ``severity`` above 0 asks for answers that flip up to it."""
        flips = filmstrip.hardest(self.records, severity) if severity and self.records is not None else None
        listed = filmstrip.chosen_numbers(self.first, label=label, flips=flips)
        pages = max(1, -(-len(listed) // filmstrip.PAGE))
        shown_page = min(max(page, 0), pages - 1)
        films = filmstrip.strip(self.first, listed, page=shown_page)
        html = fragment("strip.html", films=films, count=len(listed), page=shown_page, pages=pages)
        return {"html": html, "page": shown_page, "pages": pages}

    @torch.no_grad()
    def sweep(self, ask: ViewState, kind: str) -> dict[str, Any]:
        """All severities of one kind, through every model."""
        picture = self._picture(0, ask.image)
        rows = [sweep(lens, picture, kind, before=self._before(n, ask.image)) for n, lens in enumerate(self.lenses)]
        return {"html": fragment("sweep.html", kind=kind, rows=rows, names=self.names)}

    def drop(self, content: bytes) -> str:
        """Keep a dropped picture in memory; returns what links call it."""
        image = decode_bytes(content, largest_image=LARGEST_PICTURE).image
        name = DROPPED + hashlib.blake2b(content, digest_size=8).hexdigest()
        self._dropped[name] = LabImage(image, name)
        while len(self._dropped) > UPLOADS:
            self._dropped.popitem(last=False)
        return name

    @torch.no_grad()
    def kept(self, ask: ViewState, form: str) -> bytes:
        """What is seen as a ``picture.png``, a self-contained ``card.html``, or the ``lines.py`` that reproduce it."""
        seen = [self.seen(number, ask) for number in self._numbers]
        return downloads.FORMS[form](seen, layer=ask.layer, head=ask.head, names=self.names)

    # what it knows

    @property
    def first(self) -> OpenedModel:
        """The model whose data and records the filmstrip shows."""
        return self.lenses[0]

    @property
    def names(self) -> list[str]:
        """Of the models."""
        return [lens.name for lens in self.lenses]

    @cached_property
    def records(self) -> Records | None:
        """Of the first model that has some of these data."""
        return next((found for lens in self.lenses if (found := filmstrip.fitting_records(lens)) is not None), None)

    def seen(self, number: int, ask: ViewState) -> Inspection:
        """A look, from memory if it is one of the last few."""
        return self._look(number, ask.image, ask.damage)

    @property
    def _numbers(self) -> range:
        return range(len(self.lenses))

    def _title(self, ask: ViewState) -> str:
        picture = self._picture(0, ask.image)
        truth = picture.target if isinstance(picture.target, int) else None
        return picture.name + (f" ({self.first.classes[truth]})" if truth is not None else "")

    def _panel(self, number: int, ask: ViewState) -> dict[str, Any]:
        seen = self.seen(number, ask)
        found = view_data.attention(seen, layer=ask.layer, head=ask.head)
        said = view_data.answers(seen)
        numbers = fragment("numbers.html", attention=found) if found is not None else ""
        return {
            **view_data.shots(seen),
            "verdict": fragment("verdict.html", said=said),
            "answers": fragment("answers.html", said=said),
            "pictures": said["pictures"],
            "attention": found,
            "numbers": numbers,
        }

    def _picture(self, number: int, image: int | str) -> LabImage:
        if isinstance(image, int):
            return picture_of(self.lenses[number], image)
        if image not in self._dropped:
            raise HoldfastError("this picture was dropped into another session and is not kept; drop it again")
        return self._dropped[image]

    def _first_glance(self, number: int, image: int | str) -> ImagePrediction:
        return glance(self.lenses[number], self._picture(number, image), ())

    def _whole_look(self, number: int, image: int | str, damage: str) -> Inspection:
        before = self._before(number, image)
        return inspect_image(self.lenses[number], self._picture(number, image), damage, before=before)
