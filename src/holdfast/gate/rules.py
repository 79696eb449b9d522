"""Rules of a gate: ``retention >= 85``, ``C no worse by more than 0.5``, ``fog/5 no worse``, ``clean better``."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, nearest
from holdfast.io.yaml import read_yaml
from holdfast.metrics.multiple_tests import IMAGES, MARGIN

UNRESOLVED = ("fail", "pass")
SHOWN = "shown"  # of a default rule whose score is shown but not tested
FORMS = "'NAME >= NUMBER', 'NAME <= NUMBER', 'NAME no worse [by more than NUMBER]' or 'NAME better'"
_NUMBER = r"(?P<number>[-+]?\d+(?:\.\d+)?)"
_POINTS = r"(?:\s*(?:points?|%))?"
_BOUND = re.compile(rf"(?P<name>\S.*?)\s*(?P<sign>>=|<=|≥|≤)\s*{_NUMBER}{_POINTS}")
_COMPARED = re.compile(
    r"(?P<name>\S.*?)\s+(?P<what>no worse|better)(?:\s+than\s+the\s+baseline)?"
    rf"(?:\s+by\s+more\s+than\s+{_NUMBER}{_POINTS})?"
)


@dataclass(frozen=True)
class Rule:
    """One rule of a gate.

    Attributes:
        text: the rule as written.
        name: a score, a cell or a kind.
        what: ``>=`` or ``<=`` a number; ``no worse`` or ``better`` than the baseline; ``shown`` without a test.
        number: the bound, or the margin in the score's unit; None for the default margin.
    """

    text: str
    name: str
    what: str
    number: float | None = None

    @property
    def compares(self) -> bool:
        """Whether the rule compares with the baseline."""
        return self.what in ("no worse", "better", SHOWN)


@dataclass(frozen=True)
class Rules:
    """The rules of a gate and their settings.

    Attributes:
        rules: the rules; empty tests that no headline score is worse.
        unresolved: whether an unresolved difference should ``fail`` or ``pass``.
        margin: default margin of *no worse* in percentage points, for scores in percent.
        images: minimum number of images to resolve a difference.
        allow_unreadable: number of additional unreadable images allowed per data set, compared with the baseline.
    """

    rules: tuple[Rule, ...] = ()
    unresolved: str = "fail"
    margin: float = MARGIN
    images: int = IMAGES
    allow_unreadable: int = 0

    def __post_init__(self) -> None:
        if self.unresolved not in UNRESOLVED:
            raise HoldfastError(f"unresolved must be fail or pass, got {self.unresolved!r}")
        if not _is_number(self.margin) or self.margin < 0:
            raise HoldfastError(f"margin must be a number of points, at least 0, got {self.margin!r}")
        if not isinstance(self.images, int) or isinstance(self.images, bool) or self.images < 1:
            raise HoldfastError(f"images must be a whole number, at least 1, got {self.images!r}")
        allowed = self.allow_unreadable
        if not isinstance(allowed, int) or isinstance(allowed, bool) or allowed < 0:
            raise HoldfastError(f"allow_unreadable must be a whole number, at least 0, got {allowed!r}")


def parse_rule(text: str) -> Rule:
    """Parse a rule from its sentence."""
    line = " ".join(text.split())
    if found := _BOUND.fullmatch(line):
        sign = {"≥": ">=", "≤": "<="}.get(found["sign"], found["sign"])
        return Rule(line, found["name"], sign, float(found["number"]))
    if found := _COMPARED.fullmatch(line):
        number = None if found["number"] is None else float(found["number"])
        if number is not None and number < 0:
            raise HoldfastError(f"rule {line!r} must have a margin of at least 0, got {number:g}")
        return Rule(line, found["name"], found["what"], number)
    raise HoldfastError(f"a rule must have the form {FORMS}, got {line!r}")


def read_rules(path: Path) -> Rules:
    """Read the rules of a YAML file: a list of sentences, or ``rules`` with further settings."""
    try:
        values = read_yaml(path.read_text(encoding="utf-8"), name=repr(str(path)))
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(f"rules must be a readable YAML file, got {str(path)!r}") from error
    return rules_of(values, name=str(path))


def rules_of(values: Any, *, name: str) -> Rules:
    """Parse rules from plain data."""
    settings: Mapping[str, Any] = {"rules": values} if isinstance(values, list) else values
    if not isinstance(settings, Mapping):
        raise HoldfastError(f"{name!r} must contain a list of rules, got {type(values).__name__}")
    known = ("rules", "unresolved", "margin", "images", "allow_unreadable")
    for key in settings:
        if key not in known:
            raise HoldfastError(
                f"{name!r} must only have the keys {', '.join(known)}, got {key!r}{nearest(str(key), known)}"
            )
    sentences = settings.get("rules", [])
    if not isinstance(sentences, Sequence) or not all(isinstance(each, str) for each in sentences):
        raise HoldfastError(f"rules of {name!r} must be a list of sentences, got {sentences!r:.80}")
    if not sentences and "rules" in settings:
        raise HoldfastError(
            f"rules of {name!r} must contain at least one sentence: {FORMS}; omit the key to test every headline score"
        )
    options = {key: settings[key] for key in known[1:] if key in settings}
    return Rules(tuple(parse_rule(each) for each in sentences), **options)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
