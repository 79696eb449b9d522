"""A task as one object with the members of all parts, as tasks were written until November 2026."""

import warnings
from typing import Any

from holdfast.metrics.scoring.interface import Scoring
from holdfast.tasks.base import Evaluation, Task, Training

_OLD = {"adapt_model": "adapted", "batched": "together"}  # members whose names are older still
_SAID = {"lists_answers": "answer", "draws_overlays": "overlay", "whole_sets": "set_figures"}  # was: had the method


class _Part:
    """One part of such an object: its members, and the defaults of the part for those that it lacks."""

    def __init__(self, task: Any, default: Any) -> None:
        self._task, self._default = task, default

    def __getattr__(self, name: str) -> Any:
        if name in _SAID and hasattr(self._default, name):
            return hasattr(self._task, _SAID[name])
        for known in (name, _OLD.get(name, name)):
            if hasattr(self._task, known):
                return getattr(self._task, known)
        return getattr(self._default, name)


class _Scoring(Scoring):
    """Defaults of a scoring."""


class _Evaluation(Evaluation):
    """Defaults of an evaluation."""


class _Training(Training):
    """Defaults of a training."""


def task_of_parts(task: Any) -> Task:
    """Split an object with the members of all parts."""
    warnings.warn(
        f"{type(task).__name__} is a task in one object: register Task(name, scoring=…, evaluation=…, training=…)",
        DeprecationWarning,
        stacklevel=3,
    )
    scoring: Any = _Part(task, _Scoring())  # type: ignore[abstract]
    evaluation: Any = _Part(task, _Evaluation())  # type: ignore[abstract]
    training: Any = _Part(task, _Training())  # type: ignore[abstract]
    drawing = getattr(task, "examples", None)
    return Task(task.name, scoring=scoring, evaluation=evaluation, training=training, drawing=drawing)
