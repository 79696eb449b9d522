"""The choice among candidates: successive halving, and the best one whose clean score is not resolved to be worse."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.improvement.candidates import PLAIN
from holdfast.improvement.scores import Measured, gain

FINALISTS = 3


def rung_sizes(count: int) -> list[int]:
    """How many candidates are trained in every rung: halved until three are left (Jamieson and Talwalkar 2016)."""
    sizes = [count]
    while sizes[-1] > FINALISTS:
        sizes.append(max(FINALISTS, -(-sizes[-1] // 2)))
    return sizes


def survivors(scores: Mapping[str, float], keep: int) -> list[str]:
    """The best candidates, plain training always among them as the control of equal cost; in their first order."""
    ranked = sorted(scores, key=lambda name: -scores[name])  # stable: of equals the first stays
    kept = [PLAIN, *(name for name in ranked if name != PLAIN)][:keep] if PLAIN in scores else ranked[:keep]
    return [name for name in scores if name in kept]


@dataclass(frozen=True)
class Entry:
    """A model that may be chosen.

    Attributes:
        name: name of the candidate, or ``soup``.
        alpha: weight against the start; 1 for the trained model itself.
        members: candidates whose weights it is made of.
        measured: its scores on the choosing half.
    """

    name: str
    alpha: float
    members: tuple[str, ...]
    measured: Measured

    @property
    def label(self) -> str:
        """Name with the interpolation."""
        return self.name if self.alpha == 1 else f"{self.name}, interpolated {self.alpha:g}"


def choose(entries: Sequence[Entry]) -> Entry:
    """The entry with the best score on bad images among those whose clean score is not resolved below plain's."""
    plain = next((entry for entry in entries if entry.name == PLAIN and entry.alpha == 1), None)
    allowed = [entry for entry in entries if plain is None or not _is_worse_clean(entry, plain)]
    return max(allowed, key=lambda entry: entry.measured.values[1])  # of equals the first


def _is_worse_clean(entry: Entry, plain: Entry) -> bool:
    if entry is plain:
        return False
    return gain([entry.measured.clean], [plain.measured.clean]).high < 0
