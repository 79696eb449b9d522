"""What a cell's name stands for may be corrected: records of another revision are neither continued nor compared.

A cell's definition names its revision if it is not the first, and goes with its records. Revision 2, of 2026-11-16:
Patch-Fool in normalised values; sequences with the published zoom, tilt and directions; motion blur and snow that floor
as ImageMagick does, in all presets but ``any``; learned occlusion with one corruption model for all images.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.records.cells import CellSpec
from holdfast.records.records import Records

logger = logging.getLogger(__name__)

SUITES = {"perturbations": 2, "patch-fool": 2, "patch-fool-sparse": 2, "occlusion-learned": 2}
OWN = ("code", "settings", "parameters")  # what makes somebody's own thing the same as another of its name
FLOORED = {"motion_blur": 2, "snow": 2}


def with_revision(definition: Mapping[str, Any], cell: CellSpec, *, preset: str) -> dict[str, Any]:
    """The definition of a cell that is made now, with its revision if that is not the first."""
    number = SUITES.get(definition["suite"], 1)
    if cell.family == "corruption" and preset != "any":
        number = FLOORED.get(cell.kind, 1)
    return dict(definition) if number == 1 else {**definition, "revision": number}


def without_older(sets: Sequence[Records]) -> list[Records]:
    """The record sets without the cells of which one of them has a newer revision; those are named in the log."""
    newest: dict[str, int] = {}
    for records in sets:
        for name, number in _revisions(records).items():
            newest[name] = max(newest.get(name, 1), number)
    return [_only(records, newest, unlike=_unlike(sets)) for records in sets]


def like(records: Records, other: Records) -> Records:
    """The other records without the cells that these hold in another revision."""
    return _only(other, _revisions(records), unlike=_unlike([records, other]))


def _unlike(sets: Sequence[Records]) -> set[str]:
    """The cells of somebody's own corruption or attack that is not the same code or settings everywhere."""
    found: dict[str, set[str]] = {}
    for records in sets:
        for name, cell in records.cells.items():
            told = {key: cell.header[key] for key in OWN if key in cell.header}
            if "code" in told:
                found.setdefault(name, set()).add(json.dumps(told, sort_keys=True))
    return {name for name, definitions in found.items() if len(definitions) > 1}


def _only(records: Records, wanted: Mapping[str, int], *, unlike: set[str]) -> Records:
    older = {name for name, number in _revisions(records).items() if number != wanted.get(name, number)}
    left_out = [name for name in records.cells if name in older | unlike]
    if not left_out:
        return records
    logger.warning(
        "%s: left out what was measured by another definition than the rest: %s; evaluate again to compare it",
        records.header.get("model", "a model"),
        ", ".join(left_out[:5]) + (f" and {len(left_out) - 5} more" if len(left_out) > 5 else ""),
    )
    return records.only([name for name in (*records.cells, *records.incomplete) if name not in left_out])


def _revisions(records: Records) -> dict[str, int]:
    """Of all cells that we make ourselves; stored sets are as they are."""
    return {
        name: int(cell.header.get("revision", 1)) for name, cell in records.cells.items() if "set" not in cell.header
    }
