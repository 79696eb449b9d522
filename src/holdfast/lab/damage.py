"""What is done to an image, in order, as a short text: ``fog/3,hide/8x8:27.28,pgd/8``.

``KIND/SEVERITY`` is a corruption; ``hide/ROWSxCOLUMNS:…`` covers painted patches, counted row by row; ``occlude/ρ`` a
random share of the patches and ``learned/ρ`` those that a corruption model chooses (AFAT); ``fgsm/ε`` and ``pgd/ε``
attack, ε in 255ths. ``@N`` behind a step draws with seed N instead of the records' own.
"""

import re
from dataclasses import dataclass

from holdfast.corruptions.catalog import check_severity, kind_of
from holdfast.errors import HoldfastError

OCCLUSIONS, ATTACKS, HIDE = ("occlude", "learned"), ("fgsm", "pgd"), "hide"
FAMILIES = ("corruption", HIDE, "occlusion", "attack")
MOST_STEPS, MOST_SIDE, MOST_SEED, MOST_EPS = 12, 64, 2**31 - 1, 64.0
_STEP = re.compile(r"([a-z][\w-]*)/([\w.:-]+)(?:@(\d{1,10}))?")
_HIDDEN = re.compile(r"(\d{1,2})x(\d{1,2}):(\d{1,4}(?:\.\d{1,4})*)")


@dataclass(frozen=True)
class Damage:
    """One step.

    Attributes:
        kind: a corruption's name, ``hide``, ``occlude``, ``learned``, ``fgsm`` or ``pgd``.
        amount: its severity, the share of patches ρ, or ε in 255ths; 0 for ``hide``.
        seed: of its draws; None for the seed of the records.
        grid: rows and columns of the patches that ``hide`` counts.
        patches: those that it covers, row by row.
    """

    kind: str
    amount: float = 0
    seed: int | None = None
    grid: tuple[int, int] | None = None
    patches: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.seed is not None and not 0 <= self.seed <= MOST_SEED:
            raise HoldfastError(f"a step's seed must lie in 0…{MOST_SEED}, got {self.seed}")
        _CHECKS[self.family](self)

    @property
    def family(self) -> str:
        """``corruption``, ``hide``, ``occlusion`` or ``attack``."""
        if self.kind == HIDE:
            return HIDE
        return "occlusion" if self.kind in OCCLUSIONS else "attack" if self.kind in ATTACKS else "corruption"

    def __str__(self) -> str:
        drawn = "" if self.seed is None else f"@{self.seed}"
        if self.grid is not None:
            return f"{self.kind}/{self.grid[0]}x{self.grid[1]}:{'.'.join(map(str, self.patches))}{drawn}"
        return f"{self.kind}/{self.amount:g}{drawn}"

    @property
    def words(self) -> str:
        """For people."""
        name = self.kind.replace("_", " ")
        told = {
            "corruption": f"{name}, severity {self.amount:g}",
            HIDE: f"{len(self.patches)} {'patch' if len(self.patches) == 1 else 'patches'} hidden",
            "occlusion": f"{100 * self.amount:g} % of the patches hidden{self._chosen}",
            "attack": f"{self.kind.upper()}, ε = {self.amount:g}/255",
        }[self.family]
        return told if self.seed is None else f"{told}, draw {self.seed}"

    @property
    def _chosen(self) -> str:
        return " by the corruption model" if self.kind == "learned" else " at random"


def _check_corruption(step: Damage) -> None:
    kind_of(step.kind)
    if step.amount != int(step.amount):
        raise HoldfastError(f"severity of {step.kind} must be a whole number, got {step.amount:g}")
    check_severity(int(step.amount))


def _check_hidden(step: Damage) -> None:
    if step.grid is None or not all(1 <= side <= MOST_SIDE for side in step.grid):
        raise HoldfastError(f"hide must name a grid of at most {MOST_SIDE}×{MOST_SIDE} patches, got {step.grid}")
    count = step.grid[0] * step.grid[1]
    if not step.patches or max(step.patches) >= count:
        raise HoldfastError(f"hidden patches must lie in 0…{count - 1}, got {step.patches}")


def _check_share(step: Damage) -> None:
    if not 0 < step.amount <= 1:
        raise HoldfastError(f"ρ of {step.kind} must lie in (0, 1], got {step.amount:g}")


def _check_radius(step: Damage) -> None:
    if not 0 < step.amount <= MOST_EPS:
        raise HoldfastError(f"ε of {step.kind} must lie in (0, {MOST_EPS:g}], in 255ths, got {step.amount:g}")


_CHECKS = {"corruption": _check_corruption, HIDE: _check_hidden, "occlusion": _check_share, "attack": _check_radius}


def parse_damage(text: str) -> tuple[Damage, ...]:
    """The steps of a text; none for an empty one."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if len(words) > MOST_STEPS:
        raise HoldfastError(f"an image must be damaged by at most {MOST_STEPS} steps, got {len(words)}")
    return tuple(_parsed(word) for word in words)


def damage_text(steps: tuple[Damage, ...]) -> str:
    """What `parse_damage` reads."""
    return ",".join(map(str, steps))


def _parsed(word: str) -> Damage:
    found = _STEP.fullmatch(word)
    if found is None:
        raise HoldfastError(
            f"a step must read like fog/3, hide/8x8:27.28, occlude/0.1, learned/0.1, fgsm/1 or pgd/8, got {word!r}"
        )
    kind, amount, seed = found[1], found[2], None if found[3] is None else int(found[3])
    if kind == HIDE:
        return _parsed_hidden(amount, word, seed=seed)
    try:
        return Damage(kind, float(amount), seed)
    except (ValueError, OverflowError) as error:
        if isinstance(error, HoldfastError):
            raise
        raise HoldfastError(f"{kind} must have a number behind its /, got {amount!r}") from error


def _parsed_hidden(amount: str, word: str, *, seed: int | None) -> Damage:
    found = _HIDDEN.fullmatch(amount)
    if found is None:
        raise HoldfastError(f"hide must read like hide/8x8:27.28, got {word!r}")
    patches = tuple(sorted({int(number) for number in found[3].split(".")}))
    return Damage(HIDE, 0, seed, (int(found[1]), int(found[2])), patches)
