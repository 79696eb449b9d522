"""Revisions of cell definitions: records of different revisions are neither resumed nor compared.

A cell's definition, which is part of its records, names its revision if it is not the first. Revision 2, 2026-11-16:
Patch-Fool in normalised values; sequences with the published zoom, tilt and directions; motion blur and snow that floor
as ImageMagick does, in all presets but ``any``; learned occlusion with one corruption model for all images.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.cells import CellSpec
from holdfast.records.records import Records

logger = logging.getLogger(__name__)

SUITES = {"perturbations": 2, "patch-fool": 2, "patch-fool-sparse": 2, "occlusion-learned": 2}
OWN = ("code", "settings", "parameters")  # keys that must agree for custom corruptions and attacks of one name
FLOORED = {"motion_blur": 2, "snow": 2}


def with_revision(definition: Mapping[str, Any], cell: CellSpec, *, preset: str) -> dict[str, Any]:
    """The definition of a cell with its current revision, if that is not the first."""
    number = SUITES.get(definition["suite"], 1)
    if cell.family == "corruption" and preset != "any":
        number = FLOORED.get(cell.kind, 1)
    return dict(definition) if number == 1 else {**definition, "revision": number}


def without_older(sets: Sequence[Records]) -> list[Records]:
    """Remove cells of which another record set has a newer revision; a warning names them."""
    newest: dict[str, int] = {}
    for records in sets:
        for name, number in _revisions(records).items():
            newest[name] = max(newest.get(name, 1), number)
    return [_only(records, newest, unlike=_unlike(sets)) for records in sets]


def like(records: Records, other: Records) -> Records:
    """Remove the cells from ``other`` whose revision differs from that in ``records``."""
    return _only(other, _revisions(records), unlike=_unlike([records, other]))


def _unlike(sets: Sequence[Records]) -> set[str]:
    """Cells of custom corruptions or attacks whose code or settings differ between the record sets."""
    found: dict[str, set[str]] = {}
    for records in sets:
        for name, cell in records.cells.items():
            definition = {key: cell.header[key] for key in OWN if key in cell.header}
            if "code" in definition:
                found.setdefault(name, set()).add(json.dumps(definition, sort_keys=True))
    return {name for name, definitions in found.items() if len(definitions) > 1}


def _only(records: Records, wanted: Mapping[str, int], *, unlike: set[str]) -> Records:
    older = {name for name, number in _revisions(records).items() if number != wanted.get(name, number)}
    left_out = [name for name in records.cells if name in older | unlike]
    if not left_out:
        return records
    logger.warning(
        "%s: omitted cells that were measured by another definition: %s; evaluate again to compare them",
        records.header.get("model", "a model"),
        ", ".join(left_out[:5]) + (f" and {len(left_out) - 5} more" if len(left_out) > 5 else ""),
    )
    return records.only([name for name in (*records.cells, *records.incomplete) if name not in left_out])


def _revisions(records: Records) -> dict[str, int]:
    """Revisions of the cells that Holdfast generates; stored sets have none."""
    return {
        name: int(cell.header.get("revision", 1)) for name, cell in records.cells.items() if "set" not in cell.header
    }
