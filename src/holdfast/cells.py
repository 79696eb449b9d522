"""``CellSpec``: family, kind and severity of a cell as data; its name serves for display and file names only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from holdfast.corruptions.sequences import SEQUENCES
from holdfast.corruptions.severities import PUBLISHED
from holdfast.errors import HoldfastError

Family = Literal["clean", "corruption", "sequence", "attack", "set", "condition", "domain"]
FAMILIES: tuple[Family, ...] = get_args(Family)


@dataclass(frozen=True)
class CellSpec:
    """One condition that is applied to all images of a data set.

    Attributes:
        name: ``clean``, ``fog/3``, ``pgd5``; unique within a record set.
        family: ``clean`` images, an artificial ``corruption``, a perturbation ``sequence``, an ``attack``, another
            ``set`` of images such as ImageNet-A, a natural ``condition`` such as night, or a ``domain`` such as
            sketches.
        kind: name of the corruption, sequence, attack, set, condition or domain; empty for clean images.
        severity: severity of a corruption, 1 to 5; else 0.
    """

    name: str
    family: Family
    kind: str = ""
    severity: int = 0

    def __str__(self) -> str:
        return self.name

    def plain(self) -> dict[str, Any]:
        """Family, kind and severity as plain data, for the header of a record."""
        known: dict[str, Any] = {"family": self.family}
        return (
            known | ({"kind": self.kind} if self.kind else {}) | ({"severity": self.severity} if self.severity else {})
        )


CLEAN = CellSpec("clean", "clean")


def corruption_cell(kind: str, severity: int) -> CellSpec:
    """The cell of a corruption at a severity, named like ``fog/3``."""
    return CellSpec(f"{kind}/{severity}", "corruption", kind, severity)


def sequence_cell(kind: str) -> CellSpec:
    """The cell of a perturbation sequence, named like ``sequence/rotate``."""
    return CellSpec(f"sequence/{kind}", "sequence", kind)


def attack_cell(name: str) -> CellSpec:
    """The cell of an attack, named like ``pgd5``."""
    return CellSpec(name, "attack", name)


def set_cell(name: str) -> CellSpec:
    """The cell of another test set, named like ``imagenet-a``."""
    return CellSpec(name, "set", name)


def condition_cell(name: str) -> CellSpec:
    """The cell of a natural condition, named like ``night``."""
    return CellSpec(name, "condition", name)


def domain_cell(name: str) -> CellSpec:
    """The cell of a domain, named like ``domain/photo``."""
    return CellSpec(f"domain/{name}", "domain", name)


def spec_of(header: Mapping[str, Any]) -> CellSpec:
    """The cell that a record's header describes."""
    name = str(header.get("cell", ""))
    if "family" not in header:
        raise HoldfastError(
            f"the header of cell {name!r} must name its family, one of {', '.join(FAMILIES)}: evaluate again"
        )
    return CellSpec(name, header["family"], str(header.get("kind", "")), int(header.get("severity", 0)))


def in_order(cells: Sequence[CellSpec]) -> list[CellSpec]:
    """Sort cells: clean, corruptions and sequences in their canonical order, attacks, sets, conditions."""
    return sorted(cells, key=lambda cell: (FAMILIES.index(cell.family), _place(cell), cell.severity, cell.name))


def _place(cell: CellSpec) -> int:
    known = {"corruption": PUBLISHED, "sequence": SEQUENCES}.get(cell.family, ())
    return known.index(cell.kind) if cell.kind in known else len(known)
