"""Session of the lab: opened models, the inspected image and its edits."""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import isnan
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
    inspect_image,
    picture_of,
    predict_image,
    probabilities,
    right,
)
from holdfast.lab.opened_model import OpenedModel
from holdfast.lab.shipped import SHIPPED, SHIPPED_NAME
from holdfast.lab.templates import fragment
from holdfast.metrics.corruption import percent_of_clean
from holdfast.plotting import annotate
from holdfast.records.records import Records

THUMBNAIL = 96
NEARLY, HALF = 0.9, 0.5  # fractions of the score of the unedited image


def sweep(
    opened: OpenedModel, picture: LabImage, kind: str, *, before: ImagePrediction, seed: int | None = None
) -> list[dict[str, Any]]:
    """Predictions for every severity of one corruption."""
    kind_of(kind)
    return [_swept(opened, picture, Edits(kind, severity, seed), before) for severity in SEVERITIES]


def _swept(opened: OpenedModel, picture: LabImage, step: Edits, before: ImagePrediction) -> dict[str, Any]:
    inspection = Inspection(opened, picture, (step,), before, predict_image(opened, picture, (step,)))
    said, state = _answer(inspection) if opened.task.scoring.one_class else _score(inspection)
    url = annotate.data_url(annotate.shrunk(inspection.after.bytes, most=THUMBNAIL))
    return {"step": str(step), "said": said, "state": state, "url": url}


def _answer(inspection: Inspection) -> tuple[str, str]:
    """The predicted class, and whether it is correct or, without a label, unchanged by the edits."""
    view = next(iter(inspection.after.answers))
    chances, clean = (probabilities(seen.answers[view][0]) for seen in (inspection.after, inspection.before))
    score = right(inspection, inspection.after, view)
    good = bool(score) if score is not None else chances.argmax() == clean.argmax()
    return f"{inspection.opened.classes[chances.argmax()]} {100 * chances.max():.0f} %", "good" if good else "bad"


def _score(inspection: Inspection) -> tuple[str, str]:
    """The score, and whether at least 90 %, 50 % or less of the clean score remains."""
    view = next(iter(inspection.after.answers))
    score, clean = (right(inspection, seen, view) for seen in (inspection.after, inspection.before))
    if score is None or clean is None:
        return "" if score is None else f"{100 * score:.0f} %", "unknown"
    left = percent_of_clean(score, clean) / 100
    state = "unknown" if isnan(left) else "good" if left >= NEARLY else "fair" if left >= HALF else "bad"
    return f"{100 * score:.0f} %", state


LARGEST_UPLOAD, LARGEST_PICTURE = 16 * 2**20, 16_000_000  # bytes, pixels
SMALLEST_SIDE, LONGEST = 8, 20  # thinner images leave nothing when their short side is brought to a model's size
UPLOADS, INSPECTIONS = 4, 6  # sizes of the caches
DROPPED = "dropped-"


class BadRequest(HoldfastError):
    """A request that no page of ours sends, or an image that no model takes: answered with status 400."""


@dataclass(frozen=True)
class ViewState:
    """State of the view, stored in the link: numbers and settings, never paths.

    Attributes:
        image: index in the data, or the name of an uploaded image.
        damage: the edits, see `holdfast.lab.edits`.
        layer: the layer whose attention is shown; −1 for the last.
        head: the head whose attention is shown; −1 for the mean of all.
    """

    image: int | str = 0
    damage: str = ""
    layer: int = -1
    head: int = -1


def parse_view_state(values: Mapping[str, Any]) -> ViewState:
    """Parse a view state from a browser's request."""
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
    """One or two models on the same data, with caches of recent inspections."""

    def __init__(self, models: list[OpenedModel]) -> None:
        self.models = models
        self._dropped: OrderedDict[str, LabImage] = OrderedDict()
        self._before = lru_cache(INSPECTIONS)(self._predict_unedited)
        self._cached_inspection = lru_cache(INSPECTIONS)(self._inspect)

    @torch.no_grad()
    def inspect(self, view_state: ViewState) -> dict[str, Any]:
        """Images and predictions of every model, and the attention of one layer."""
        steps = [{"step": str(step), "words": step.words} for step in parse_edits(view_state.damage)]
        panels = [self._panel(n, view_state) for n in self._numbers]
        return {"do": view_state.damage, "title": self._title(view_state), "steps": steps, "panels": panels}

    @torch.no_grad()
    def inside(self, view_state: ViewState) -> dict[str, Any]:
        """The slower part: stability of all layers, channel attention, gates."""
        found = [
            view_data.inside(self.inspection(n, view_state), layer=view_state.layer, head=view_state.head)
            for n in self._numbers
        ]
        floor = min((one["floor"] for one in found if one["layers"]), default=0.0)
        for one in found:  # one scale for the bars of both models
            one["floor"] = floor
        parts = {"html": "inside.html", "more": "more.html"}
        return {"panels": [{name: fragment(part, inside=one) for name, part in parts.items()} for one in found]}

    @torch.no_grad()
    def token(self, view_state: ViewState, *, row: float, column: float) -> dict[str, Any]:
        """Attention map of one token."""
        options: dict[str, Any] = {"layer": view_state.layer, "head": view_state.head, "row": row, "column": column}
        return {"panels": [view_data.token_row(self.inspection(n, view_state), **options) for n in self._numbers]}

    def strip(self, *, label: int | None, severity: int, page: int, domain: int | None = None) -> dict[str, Any]:
        """One page of the filmstrip; ``severity`` above 0 selects predictions that flip up to it."""
        flips = filmstrip.hardest(self.records, severity) if severity and self.records is not None else None
        listed = filmstrip.chosen_numbers(self.first, label=label, flips=flips, domain=domain)
        pages = max(1, -(-len(listed) // filmstrip.PAGE))
        current = min(max(page, 0), pages - 1)
        films = filmstrip.strip(self.first, listed, page=current)
        html = fragment("strip.html", films=films, count=len(listed), page=current, pages=pages)
        return {"html": html, "page": current, "pages": pages}

    @torch.no_grad()
    def sweep(self, view_state: ViewState, kind: str) -> dict[str, Any]:
        """Predictions of every model for all severities of one corruption."""
        picture = self._picture(0, view_state.image)
        rows = [
            sweep(opened, picture, kind, before=self._before(n, view_state.image))
            for n, opened in enumerate(self.models)
        ]
        return {"html": fragment("sweep.html", kind=kind, rows=rows, names=self.names)}

    def drop(self, content: bytes) -> str:
        """Keep an uploaded image in memory and return its name in links."""
        image = decode_bytes(content, largest_image=LARGEST_PICTURE).image
        short, long = sorted(image.size)
        if short < SMALLEST_SIDE or long > LONGEST * short:
            raise BadRequest(
                f"an image must be at least {SMALLEST_SIDE} pixels wide and high and at most {LONGEST} times as long "
                f"as wide, got {image.width}×{image.height}"
            )
        name = DROPPED + hashlib.blake2b(content, digest_size=8).hexdigest()
        self._dropped[name] = LabImage(image, name)
        while len(self._dropped) > UPLOADS:
            self._dropped.popitem(last=False)
        return name

    @torch.no_grad()
    def download(self, view_state: ViewState, form: str) -> bytes:
        """The view as ``picture.png``, self-contained ``card.html``, or ``lines.py`` that reproduces it."""
        seen = [self.inspection(number, view_state) for number in self._numbers]
        return downloads.FORMS[form](seen, layer=view_state.layer, head=view_state.head, names=self.names)

    @property
    def first(self) -> OpenedModel:
        """The first model, whose data the filmstrip shows."""
        return self.models[0]

    @property
    def names(self) -> list[str]:
        """The names of the models."""
        return [SHIPPED_NAME if opened.folder == SHIPPED else opened.name for opened in self.models]

    @cached_property
    def records(self) -> Records | None:
        """Records of the first model that has some for these data."""
        return next((found for opened in self.models if (found := filmstrip.fitting_records(opened)) is not None), None)

    def inspection(self, number: int, view_state: ViewState) -> Inspection:
        """Inspect the image with one model, or take one of the last few results from the cache."""
        return self._cached_inspection(number, view_state.image, view_state.damage)

    @property
    def _numbers(self) -> range:
        return range(len(self.models))

    def _title(self, view_state: ViewState) -> str:
        picture = self._picture(0, view_state.image)
        truth = picture.target if isinstance(picture.target, int) else None
        return picture.name + (f" ({self.first.classes[truth]})" if truth is not None else "")

    def _panel(self, number: int, view_state: ViewState) -> dict[str, Any]:
        seen = self.inspection(number, view_state)
        found = view_data.attention(seen, layer=view_state.layer, head=view_state.head)
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
            return picture_of(self.models[number], image)
        if image not in self._dropped:
            raise HoldfastError(
                "this image was uploaded in another session and is no longer available; upload it again"
            )
        return self._dropped[image]

    def _predict_unedited(self, number: int, image: int | str) -> ImagePrediction:
        return predict_image(self.models[number], self._picture(number, image), ())

    def _inspect(self, number: int, image: int | str, damage: str) -> Inspection:
        before = self._before(number, image)
        return inspect_image(self.models[number], self._picture(number, image), damage, before=before)
