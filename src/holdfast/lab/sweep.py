"""All severities of one kind of corruption of one image: small pictures, coloured by the answer."""

from typing import Any

from holdfast.corruptions.catalog import SEVERITIES, kind_of
from holdfast.lab import pictures
from holdfast.lab.damage import Damage
from holdfast.lab.lens import Lens
from holdfast.lab.look import Glance, Look, Picture, glance, probabilities, right

THUMBNAIL = 96


def sweep(lens: Lens, picture: Picture, kind: str, *, before: Glance, seed: int | None = None) -> list[dict[str, Any]]:
    """What the model says of every severity."""
    kind_of(kind)
    return [_swept(lens, picture, Damage(kind, severity, seed), before) for severity in SEVERITIES]


def _swept(lens: Lens, picture: Picture, step: Damage, before: Glance) -> dict[str, Any]:
    seen = glance(lens, picture, (step,))
    score = right(Look(lens, picture, (step,), before, seen), seen, next(iter(seen.answers)))
    said = "" if score is None else f"{100 * score:.0f} %"
    if lens.task.name == "classification":
        chances = probabilities(next(iter(seen.answers.values()))[0])
        said = f"{lens.classes[chances.argmax()]} {100 * chances.max():.0f} %"
    return {
        "step": str(step),
        "said": said,
        "right": score,
        "url": pictures.data_url(pictures.shrunk(seen.bytes, most=THUMBNAIL)),
    }
