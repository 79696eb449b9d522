"""Tasks: classification, segmentation, detection, and registered ones. A data source names its task.

One row below per task; `register_task` adds a custom task.
"""

from typing import Any

from holdfast.errors import HoldfastError, nearest
from holdfast.metrics.scoring.registry import register_scoring
from holdfast.records.header import CLASSIFICATION
from holdfast.registry import Registry, add_row, warn_of_order
from holdfast.tasks.base import Evaluation, Task, Training
from holdfast.tasks.one_object import task_of_parts


def _shipped(name: str, line: str, *, drawing: str) -> Task:
    """A task of ours; its parts lie in the packages that use them, under the task's name."""
    return Task(
        name,
        scoring=f"holdfast.metrics.scoring.{name}:SCORING",
        evaluation=f"holdfast.evaluation.tasks.{name}:EVALUATION",
        training=f"holdfast.training.tasks.{name}:TRAINING",
        drawing=f"holdfast.tasks.examples.{drawing}",
        line=line,
    )


_SHIPPED = {
    CLASSIFICATION: _shipped(CLASSIFICATION, "one class per image", drawing="base:CLASS_EXAMPLES"),
    "segmentation": _shipped("segmentation", "one class per pixel", drawing="label_maps:MAP_EXAMPLES"),
    "detection": _shipped("detection", "boxes, classes and masks of objects", drawing="boxes:BOX_EXAMPLES"),
}
TASKS: Registry[str, Task] = Registry(_SHIPPED, register="holdfast.tasks.register_task")


def task_named(name: str) -> Task:
    """The registered task of this name."""
    if name not in TASKS:
        raise HoldfastError(f"task must be one of {', '.join(TASKS)}, got {name!r}{nearest(name, TASKS)}")
    return TASKS[name]


def task_of(source: Any) -> Task:
    """The task of a data source, by its attribute ``task``; classification without one."""
    return task_named(str(getattr(source, "task", CLASSIFICATION)))


def register_task(name: Any, task: Any = None, line: str = "") -> Any:
    """Register a `Task` under its name, to which the attribute ``task`` of data sources refers.

    ``line`` describes it in ``holdfast list tasks``.
    """
    if not isinstance(name, str):
        warn_of_order("register_task", "(name, task, line)")
        name, task = name.name, name
    made = task if isinstance(task, Task) else task_of_parts(task)
    if made.name != name:
        raise HoldfastError(f"name must be that of the task, {made.name!r}, got {name!r}")
    add_row(TASKS, name, made, what="task")
    made.line = line
    register_scoring(name, made.scoring)
    return task


__all__ = ["TASKS", "Evaluation", "Task", "Training", "register_task", "task_named", "task_of"]
