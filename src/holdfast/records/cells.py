"""What a cell is, as data. Its name is for people and for files: nobody parses it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from holdfast.corruptions.sequences import SEQUENCES
from holdfast.corruptions.severities import PUBLISHED
from holdfast.errors import HoldfastError

Family = Literal["clean", "corruption", "sequence", "attack", "set", "condition"]
FAMILIES: tuple[Family, ...] = get_args(Family)


@dataclass(frozen=True)
class CellSpec:
    """One thing that is done to all images of a data set.

    Attributes:
        name: ``clean``, ``fog/3``, ``pgd5``; unique within a record set.
        family: ``clean`` images, an artificial ``corruption``, a perturbation ``sequence``, an ``attack``, another
            ``set`` of images such as ImageNet-A, or a natural ``condition`` such as night.
        kind: which corruption, sequence, attack, set or condition; nothing of clean images.
        severity: of a corruption, 1 to 5; else 0.
    """

    name: str
    family: Family
    kind: str = ""
    severity: int = 0

    def __str__(self) -> str:
        return self.name

    def plain(self) -> dict[str, Any]:
        """What a record's header says of the cell, beside its name."""
        told: dict[str, Any] = {"family": self.family}
        return (
            told | ({"kind": self.kind} if self.kind else {}) | ({"severity": self.severity} if self.severity else {})
        )


CLEAN = CellSpec("clean", "clean")


def corruption_cell(kind: str, severity: int) -> CellSpec:
    """``fog/3``."""
    return CellSpec(f"{kind}/{severity}", "corruption", kind, severity)


def sequence_cell(kind: str) -> CellSpec:
    """``sequence/rotate``."""
    return CellSpec(f"sequence/{kind}", "sequence", kind)


def attack_cell(name: str) -> CellSpec:
    """``pgd5``."""
    return CellSpec(name, "attack", name)


def set_cell(name: str) -> CellSpec:
    """``imagenet-a``."""
    return CellSpec(name, "set", name)


def condition_cell(name: str) -> CellSpec:
    """``night``."""
    return CellSpec(name, "condition", name)


def spec_of(header: Mapping[str, Any]) -> CellSpec:
    """The cell that a record's header describes; records of format 1 say it by what else they hold."""
    name = str(header.get("cell", ""))
    if "family" in header:
        return CellSpec(name, header["family"], str(header.get("kind", "")), int(header.get("severity", 0)))
    kind = str(header.get("kind", "")).partition("(")[0]  # frost(procedural) was a kind once
    if "attack" in header:
        return attack_cell(name)
    if "frames" in header:
        return CellSpec(name, "sequence", kind)
    if "severity" in header:
        return CellSpec(name, "corruption", kind, int(header["severity"]))
    if "set" in header and name != CLEAN.name:
        return set_cell(name)
    if name not in ("", CLEAN.name):
        raise HoldfastError(f"the header of cell {name!r} must say its family: {', '.join(FAMILIES)}")
    return CLEAN


def in_order(cells: Sequence[CellSpec]) -> list[CellSpec]:
    """Clean first, then corruptions and sequences in their canonical order, then attacks, sets and conditions."""
    return sorted(cells, key=lambda cell: (FAMILIES.index(cell.family), _place(cell), cell.severity, cell.name))


def _place(cell: CellSpec) -> int:
    known = {"corruption": PUBLISHED, "sequence": SEQUENCES}.get(cell.family, ())
    return known.index(cell.kind) if cell.kind in known else len(known)
