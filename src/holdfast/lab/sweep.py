"""All severities of one kind of corruption of one image: small pictures, coloured by the answer."""

from typing import Any

from holdfast.corruptions.catalog import SEVERITIES, kind_of
from holdfast.lab import pictures
from holdfast.lab.damage import Damage
from holdfast.lab.lens import Lens
from holdfast.lab.look import Glance, Look, Picture, glance, probabilities, right

THUMBNAIL = 96
NEARLY, HALF = 0.9, 0.5  # of the score of the image as it is


def sweep(lens: Lens, picture: Picture, kind: str, *, before: Glance, seed: int | None = None) -> list[dict[str, Any]]:
    """What the model says of every severity."""
    kind_of(kind)
    return [_swept(lens, picture, Damage(kind, severity, seed), before) for severity in SEVERITIES]


def _swept(lens: Lens, picture: Picture, step: Damage, before: Glance) -> dict[str, Any]:
    look = Look(lens, picture, (step,), before, glance(lens, picture, (step,)))
    said, state = _answer(look) if lens.task.name == "classification" else _score(look)
    url = pictures.data_url(pictures.shrunk(look.after.bytes, most=THUMBNAIL))
    return {"step": str(step), "said": said, "state": state, "url": url}


def _answer(look: Look) -> tuple[str, str]:
    """The class, and whether it is right; where nobody knows that, whether it is the one of the image as it is."""
    view = next(iter(look.after.answers))
    chances, clean = (probabilities(seen.answers[view][0]) for seen in (look.after, look.before))
    score = right(look, look.after, view)
    good = bool(score) if score is not None else chances.argmax() == clean.argmax()
    return f"{look.lens.classes[chances.argmax()]} {100 * chances.max():.0f} %", "good" if good else "bad"


def _score(look: Look) -> tuple[str, str]:
    """How well it went, and whether nine tenths, half or less of it are left of the image as it is."""
    view = next(iter(look.after.answers))
    score, clean = (right(look, seen, view) for seen in (look.after, look.before))
    if score is None or not clean:
        return "" if score is None else f"{100 * score:.0f} %", "unknown"
    left = score / clean
    return f"{100 * score:.0f} %", "good" if left >= NEARLY else "fair" if left >= HALF else "bad"
