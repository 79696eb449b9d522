"""Attack suites: by name, with settings (``pgd:eps=4/255,steps=20``), as objects and as functions."""

import inspect
import itertools
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from types import NoneType
from typing import Any

from holdfast.attacks import (
    PIXEL_PRESETS,
    PRESETS,
    AutoAttack,
    CorruptorOcclusion,
    GeneratedOcclusion,
    GradientAttack,
    LearnedOcclusion,
    Occlusion,
    PatchFool,
)
from holdfast.attacks.segpgd import SegPGD
from holdfast.errors import HoldfastError, nearest
from holdfast.io.validation import number
from holdfast.runtime.plugins import code_fingerprint

# registered attacks; the corruption model of the learned occlusion is fitted to a sample of the images before they are
# scored, so it takes more epochs than a whole data set would need
ATTACKS: dict[str, Any] = {
    **PRESETS,
    **PIXEL_PRESETS,
    "occlusion-learned": LearnedOcclusion(epochs=50),
    "occlusion-generated": GeneratedOcclusion(epochs=50),
}
# further names that take settings: attack families without the settings of a published protocol
FAMILIES: dict[str, Any] = {
    "pgd": GradientAttack(eps=8 / 255, alpha=1 / 255, steps=20),
    "segpgd": SegPGD(eps=8 / 255, alpha=1 / 255, steps=20),
    "occlusion": Occlusion(),
    "occlusion-corruptor": CorruptorOcclusion(),
    "patch-fool": PatchFool(),
    "autoattack": AutoAttack(eps=8 / 255),
}
STEP = 2.5  # Madry et al. 2018: α = 2.5·ε / steps, so that PGD reaches the ball's boundary from any start


@dataclass(frozen=True, eq=False)
class AttackSuite:
    """One attack as a suite of one cell.

    Attributes:
        name: name in records, tables and scores.
        attack: callable of a model of [0,1] images, images and labels.
        settings: settings given by name; others may be adapted to the images.
    """

    name: str
    attack: Any
    settings: Mapping[str, Any]

    def __str__(self) -> str:
        return self.name

    @property
    def definition(self) -> dict[str, Any]:
        """Settings for the records; for attacks outside Holdfast also a digest of their code."""
        settings = plain(asdict(self.attack)) if is_dataclass(type(self.attack)) else {}
        definition = {"suite": self.name, "attack": _kind(self.attack), "settings": settings}
        ours = type(self.attack).__module__.startswith("holdfast.")
        return definition if ours else {**definition, "code": code_fingerprint(self.attack)}


def named_attack(name: str) -> AttackSuite:
    """The registered attack of this name as a suite."""
    return AttackSuite(name, checked_attack(ATTACKS[name]), {})


def is_attack_text(text: str) -> bool:
    """Whether a text is an attack with settings, ``NAME:KEY=VALUE``."""
    return ":" in text


def attacks_from_text(text: str) -> Iterator[AttackSuite]:
    """Parse ``NAME:KEY=VALUE,…``; values separated by ``|`` give one attack per combination."""
    base, _, rest = text.strip().partition(":")
    known = {name: attack for name, attack in {**FAMILIES, **ATTACKS}.items() if is_dataclass(type(attack))}
    if base not in known:
        raise HoldfastError(f"unknown attack {base!r} in {text!r}{nearest(base, known)}")
    choices = _choices(known[base], rest, text=text)
    for values in itertools.product(*choices.values()):
        written = dict(zip(choices, values, strict=True))
        name = f"{base}:{','.join(f'{key}={value}' for key, value in written.items())}"
        yield AttackSuite(name, _with_settings(base, known[base], written), written)


def attack_from_object(thing: Any) -> AttackSuite:
    """Make a suite of an attack object, or a function ``attack(model, images, labels)`` that returns [0,1] images.

    An object that equals a registered attack takes its name.
    """
    checked_attack(thing)
    registered = next(
        (name for name, attack in ATTACKS.items() if type(attack) is type(thing) and attack == thing), None
    )
    if registered is not None:
        return named_attack(registered)
    settings = {each.name: getattr(thing, each.name) for each in fields(thing)} if is_dataclass(type(thing)) else {}
    base = getattr(thing, "name", None) or _kind(thing)
    chosen = [f"{name}={_short(value)}" for name, value in settings.items() if value != _default(thing, name)]
    name = f"{base}:{','.join(chosen)}" if chosen and base != getattr(thing, "name", None) else str(base)
    return AttackSuite(name, thing, settings)


def checked_attack(thing: Any) -> Any:
    """Return the attack; raise an error if it cannot be called with model, images and labels."""
    if isinstance(thing, LearnedOcclusion):  # fitted before it is called
        return thing
    if isinstance(thing, type) or not callable(thing):
        raise HoldfastError(
            f"an attack must be an object or a function that takes model, images and labels, got {thing!r}"
        )
    try:
        _signature(thing).bind(None, None, None, **({"seed": 0} if "seed" in options_of(thing) else {}))
    except (TypeError, ValueError) as error:
        raise HoldfastError(f"an attack must take model, images and labels, but {_kind(thing)} does not") from error
    return thing


def options_of(attack: Any) -> set[str]:
    """Keyword arguments that an attack takes beside model, images and labels; all of ours if it takes ``**kwargs``."""
    parameters = _signature(attack).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return {"seed", "ids", "goal"}
    return set(list(parameters)[3:])


def _signature(attack: Any) -> inspect.Signature:
    return inspect.signature(getattr(attack, "forward", attack))  # a torch module is called through forward


def _choices(attack: Any, rest: str, *, text: str) -> dict[str, list[str]]:
    known = [each.name for each in fields(attack)]
    choices: dict[str, list[str]] = {}
    for part in rest.split(","):
        key, sign, value = (word.strip() for word in part.partition("="))
        if not sign or not value:
            raise HoldfastError(f"an attack must be NAME:KEY=VALUE,KEY=VALUE, as in 'pgd:eps=4/255', got {text!r}")
        if key not in known:
            hint = nearest(key, known) or f"; it has {', '.join(known)}"
            raise HoldfastError(f"unknown setting {key!r} in {text!r}{hint}")
        if key in choices:
            raise HoldfastError(f"every setting must be given once, with | between several values, got {text!r}")
        choices[key] = [word.strip() for word in value.split("|")]
    return choices


def _with_settings(base: str, attack: Any, written: Mapping[str, str]) -> Any:
    kinds = typing.get_type_hints(type(attack))
    given = {name: _value(name, text, kinds.get(name, Any)) for name, text in written.items()}
    changed = replace(attack, **given)
    if isinstance(changed, GradientAttack | SegPGD | AutoAttack):
        _check_radius(changed)
    if "alpha" in given or not hasattr(attack, "alpha"):
        return changed
    if base in FAMILIES:
        return replace(changed, alpha=_positive(STEP * changed.eps / changed.steps))
    return replace(
        changed, alpha=_positive(attack.alpha * changed.eps / attack.eps)
    )  # keeps the protocol's ratio of step to ε


def _check_radius(attack: GradientAttack | SegPGD | AutoAttack) -> None:
    """Raise an error for a radius in 255ths, such as 4 for 4/255: its ball holds every image."""
    if getattr(attack, "norm", "linf") == "linf" and attack.eps > 1:
        hint = f"; did you mean {attack.eps:g}/255?" if attack.eps <= 255 else ""
        raise HoldfastError(f"eps must be at most 1, for pixels from 0 to 1, got {attack.eps:g}{hint}")


def _positive(alpha: float) -> float:
    return alpha or 1 / 255  # ε = 0 would give a step of 0, which attacks refuse; projection undoes any step then


def _value(name: str, text: str, kind: Any) -> Any:
    """Parse the value of a setting: numbers and fractions such as 4/255, true and false, names joined with plus."""
    kinds = set(typing.get_args(kind)) if NoneType in typing.get_args(kind) else {kind}
    if NoneType in kinds and text.lower() in ("none", "null"):
        return None
    if bool in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if any(typing.get_origin(each) is tuple for each in kinds):
        return tuple(word.strip() for word in text.split("+"))
    if kinds & {int, float, Any} and (read := number(text)) is not None:
        if int in kinds and read.denominator != 1 and float not in kinds:
            raise HoldfastError(f"{name} must be a whole number, got {text!r}")
        return int(read) if read.denominator == 1 and float not in kinds else float(read)
    if kinds & {int, float, bool}:
        raise HoldfastError(
            f"{name} must be {' or '.join(sorted(_WORDS[each] for each in kinds & set(_WORDS)))}, got {text!r}"
        )
    return text


_WORDS = {int: "a whole number", float: "a number such as 0.5 or 4/255", bool: "true or false", NoneType: "none"}


def _default(thing: Any, name: str) -> Any:
    (found,) = (each for each in fields(thing) if each.name == name)
    return found.default if found.default is not MISSING else None


def _short(value: Any) -> str:
    """Format a value briefly, radii as multiples of 1/255."""
    if not isinstance(value, float) or float(f"{value:.3g}") == value:
        return f"{value:g}" if isinstance(value, float) else str(value)
    levels = round(255 * value, 6)
    return f"{levels:g}/255" if 0 < levels < 100 and levels == round(levels, 2) else f"{value:.4g}"


def _kind(thing: Any) -> str:
    return str(getattr(thing, "__name__", None) or type(thing).__name__)


def all_different(suites: Iterable[Any]) -> tuple[Any, ...]:
    """Unique suites by name; raise an error for two different attacks of one name."""
    found: dict[str, Any] = {}
    for suite in suites:
        before = found.setdefault(str(suite), suite)
        if before is not suite and isinstance(suite, AttackSuite) and before.attack != suite.attack:
            raise HoldfastError(
                f"attacks must have unique names, but two are called {suite.name!r}: "
                "give them an attribute name, or use register_attack"
            )
    return tuple(found.values())


def plain(values: Any) -> Any:
    """Settings as JSON types: tuples become lists."""
    if isinstance(values, dict):
        return {key: plain(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [plain(value) for value in values]
    return values
