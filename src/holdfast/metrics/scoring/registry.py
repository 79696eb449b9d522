"""The scoring of each task by name, imported on first use. Imports no torch."""

from holdfast.errors import HoldfastError, nearest
from holdfast.metrics.scoring.interface import Scoring
from holdfast.records.header import CLASSIFICATION
from holdfast.registry import load

_SCORINGS: dict[str, str | Scoring] = {
    CLASSIFICATION: "holdfast.metrics.scoring.classification:SCORING",
    "segmentation": "holdfast.metrics.scoring.segmentation:SCORING",
    "detection": "holdfast.metrics.scoring.detection:SCORING",
}


def scoring_of(task: str) -> Scoring:
    """The scoring of a task."""
    if task not in _SCORINGS:
        raise HoldfastError(f"task must be one of {', '.join(_SCORINGS)}, got {task!r}{nearest(task, _SCORINGS)}")
    found = _SCORINGS[task]
    if isinstance(found, str):
        found = _SCORINGS[task] = load(found)
    return found


def register_scoring(task: str, scoring: Scoring) -> None:
    """Register the scoring of a task, over one of the same name; see `holdfast.tasks.register_task`."""
    _SCORINGS[task] = scoring
