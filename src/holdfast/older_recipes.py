"""Recipes as they were written before, in today's words. Without torch.

TORA had a section of its own; today a frozen model is adapted by ``model.adapt`` and trained in ``train.phases``.
"""

from collections.abc import Mapping
from typing import Any

SECTION = "tora"
TODAY = {
    "method": ("model", "adapt", "name"),
    "start": ("model", "adapt", "start"),
    "reduction": ("model", "adapt", "options", "reduction"),
    "gate_softmax": ("model", "adapt", "options", "gate_softmax"),
    "gate_heads": ("model", "adapt", "options", "gate_heads"),
    "lambdas": ("train", "phases", "weights"),
    "phase": ("train", "phases", "run"),
    "phase1_epochs": ("train", "phases", "first_epochs"),
}
DEFAULTS = {"reduction": 16, "gate_softmax": "adapter", "gate_heads": None}  # were written out, and are not any more
FLAGS = {  # command-line spellings that stay
    "model.adapt.name": ["--tora.method"],
    "model.adapt.start": ["--tora.start"],
    "train.phases.weights": ["--tora.lambdas", "--tora.lambda"],
    "train.phases.run": ["--tora.phase"],
    "train.phases.first_epochs": ["--tora.phase1_epochs"],
}


def modern(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, with a section ``tora`` as ``model.adapt`` and ``train.phases``."""
    today = {key: value for key, value in values.items() if key != SECTION}
    section = values.get(SECTION)
    if not isinstance(section, Mapping):
        return today if section is None else dict(values)
    if unknown := {key: value for key, value in section.items() if key not in TODAY}:
        today[SECTION] = unknown  # left for the one who checks keys
    for path in (("model", "adapt"), ("train", "phases")):
        today = _with(today, path, _at(today, path) or {})
    for key, value in section.items():
        if key in TODAY and not (key in DEFAULTS and value == DEFAULTS[key]):
            today = _with(today, TODAY[key], value)
    return today


def former(values: Mapping[str, Any]) -> dict[str, Any]:
    """The other way round: complete values of today as complete values of before, by which results are named."""
    before = {key: dict(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    adapted = _at(before, ("model", "adapt")) is not None
    known = {**DEFAULTS, "method": SECTION, "lambdas": [0.5], "phase": "all"}
    told = {key: _at(before, path) for key, path in TODAY.items()}
    section = {key: known.get(key) if value is None else value for key, value in told.items()}
    for path in (("model", "adapt"), ("train", "phases")):
        before[path[0]].pop(path[1], None)
    return {**before, SECTION: section if adapted else None}


def named(values: Mapping[str, Any]) -> dict[str, Any]:
    """Where a section ``tora`` did not say by which method, TORA's own."""
    path = TODAY["method"]
    return dict(values) if _at(values, path) else _with(values, path, SECTION)


def _at(values: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def _with(values: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    if len(path) == 1:
        return {**values, path[0]: value}
    inner = values.get(path[0])
    return {**values, path[0]: _with(inner if isinstance(inner, Mapping) else {}, path[1:], value)}
