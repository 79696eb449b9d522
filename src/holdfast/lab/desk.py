"""What a page asks, and what it is told: state is a short text in the link, everything else follows from it.

A desk keeps the last few looks, so that a hovered token needs no forward pass, and the last few dropped pictures, in
memory alone. It is asked by one thread at a time.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch

from holdfast.decoding import decode_bytes
from holdfast.errors import HoldfastError
from holdfast.lab import keep, pick, shown
from holdfast.lab.damage import damage_text, parse_damage
from holdfast.lab.lens import Lens
from holdfast.lab.look import Glance, Look, Picture, glance, look, picture_of
from holdfast.lab.sweep import sweep
from holdfast.lab.templates import fragment
from holdfast.records.records import Records

LARGEST_UPLOAD, LARGEST_PICTURE = 16 * 2**20, 16_000_000  # bytes, pixels
UPLOADS, LOOKS = 4, 6  # that are kept
DROPPED = "dropped-"


@dataclass(frozen=True)
class Ask:
    """What a link holds: numbers and settings, never paths.

    Attributes:
        image: its number in the data, or the name of a dropped picture.
        damage: see `holdfast.lab.damage`.
        layer: whose attention is shown; −1 for the last.
        head: likewise; −1 for the mean of all.
    """

    image: int | str = 0
    damage: str = ""
    layer: int = -1
    head: int = -1


def parse_ask(values: Mapping[str, Any]) -> Ask:
    """An ask from what a browser sent."""
    image = str(values.get("image", "0"))
    return Ask(
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
    return damage_text(parse_damage(str(value)[:20_000]))


class Desk:
    """One or two models on the same data."""

    def __init__(self, lenses: list[Lens]) -> None:
        self.lenses = lenses
        self._dropped: OrderedDict[str, Picture] = OrderedDict()
        self._before = lru_cache(LOOKS)(self._first_glance)
        self._look = lru_cache(LOOKS)(self._whole_look)

    # what the page asks

    @torch.no_grad()
    def look(self, ask: Ask) -> dict[str, Any]:
        """Pictures and answers of every model, and the attention of one layer."""
        steps = [{"step": str(step), "words": step.words} for step in parse_damage(ask.damage)]
        panels = [self._panel(n, ask) for n in self._numbers]
        return {"do": ask.damage, "title": self._title(ask), "steps": steps, "panels": panels}

    @torch.no_grad()
    def inside(self, ask: Ask) -> dict[str, Any]:
        """What takes a little longer: stability of all layers, channel attention, gates."""
        found = [shown.inside(self.seen(n, ask), layer=ask.layer, head=ask.head) for n in self._numbers]
        parts = {"html": "inside.html", "more": "more.html"}
        return {"panels": [{name: fragment(part, inside=one) for name, part in parts.items()} for one in found]}

    @torch.no_grad()
    def token(self, ask: Ask, *, row: float, column: float) -> dict[str, Any]:
        """Where one token looks."""
        options: dict[str, Any] = {"layer": ask.layer, "head": ask.head, "row": row, "column": column}
        return {"panels": [shown.token_row(self.seen(n, ask), **options) for n in self._numbers]}

    def strip(self, *, label: int | None, severity: int, page: int) -> dict[str, Any]:
        """One page of the filmstrip; ``severity`` above 0 asks for answers that flip up to it."""
        flips = pick.hardest(self.records, severity) if severity and self.records is not None else None
        listed = pick.chosen_numbers(self.first, label=label, flips=flips)
        pages = max(1, -(-len(listed) // pick.PAGE))
        shown_page = min(max(page, 0), pages - 1)
        films = pick.strip(self.first, listed, page=shown_page)
        html = fragment("strip.html", films=films, count=len(listed), page=shown_page, pages=pages)
        return {"html": html, "page": shown_page, "pages": pages}

    @torch.no_grad()
    def sweep(self, ask: Ask, kind: str) -> dict[str, Any]:
        """All severities of one kind, through every model."""
        picture = self._picture(0, ask.image)
        rows = [sweep(lens, picture, kind, before=self._before(n, ask.image)) for n, lens in enumerate(self.lenses)]
        return {"html": fragment("sweep.html", kind=kind, rows=rows, names=self.names)}

    def drop(self, content: bytes) -> str:
        """Keep a dropped picture in memory; returns what links call it."""
        image = decode_bytes(content, largest_image=LARGEST_PICTURE).image
        name = DROPPED + hashlib.blake2b(content, digest_size=8).hexdigest()
        self._dropped[name] = Picture(image, name)
        while len(self._dropped) > UPLOADS:
            self._dropped.popitem(last=False)
        return name

    @torch.no_grad()
    def kept(self, ask: Ask, form: str) -> bytes:
        """What is seen as a ``picture.png``, a self-contained ``card.html``, or the ``lines.py`` that reproduce it."""
        seen = [self.seen(number, ask) for number in self._numbers]
        return keep.FORMS[form](seen, layer=ask.layer, head=ask.head, names=self.names)

    # what it knows

    @property
    def first(self) -> Lens:
        """The model whose data and records the filmstrip shows."""
        return self.lenses[0]

    @property
    def names(self) -> list[str]:
        """Of the models."""
        return [lens.name for lens in self.lenses]

    @cached_property
    def records(self) -> Records | None:
        """Of the first model that has some of these data."""
        return next((found for lens in self.lenses if (found := pick.fitting_records(lens)) is not None), None)

    def seen(self, number: int, ask: Ask) -> Look:
        """A look, from memory if it is one of the last few."""
        return self._look(number, ask.image, ask.damage)

    @property
    def _numbers(self) -> range:
        return range(len(self.lenses))

    def _title(self, ask: Ask) -> str:
        picture = self._picture(0, ask.image)
        truth = picture.target if isinstance(picture.target, int) else None
        return picture.name + (f" ({self.first.classes[truth]})" if truth is not None else "")

    def _panel(self, number: int, ask: Ask) -> dict[str, Any]:
        seen = self.seen(number, ask)
        found = shown.attention(seen, layer=ask.layer, head=ask.head)
        said = shown.answers(seen)
        numbers = fragment("numbers.html", attention=found) if found is not None else ""
        return {
            **shown.shots(seen),
            "verdict": fragment("verdict.html", said=said),
            "answers": fragment("answers.html", said=said),
            "pictures": said["pictures"],
            "attention": found,
            "numbers": numbers,
        }

    def _picture(self, number: int, image: int | str) -> Picture:
        if isinstance(image, int):
            return picture_of(self.lenses[number], image)
        if image not in self._dropped:
            raise HoldfastError("this picture was dropped into another session and is not kept; drop it again")
        return self._dropped[image]

    def _first_glance(self, number: int, image: int | str) -> Glance:
        return glance(self.lenses[number], self._picture(number, image), ())

    def _whole_look(self, number: int, image: int | str, damage: str) -> Look:
        before = self._before(number, image)
        return look(self.lenses[number], self._picture(number, image), damage, before=before)
