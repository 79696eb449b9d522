"""What an answer is: classification, and whatever else is registered here. A data source names its task.

One file per task and one row below; a user's own task is registered by :func:`register_task`.
"""

import importlib
from typing import Any

from holdfast.errors import HoldfastError, nearest
from holdfast.records.header import CLASSIFICATION
from holdfast.tasks.base import Task

# where each task is; imported when first asked for, so that reading records needs no torch
TASKS: dict[str, str | Task] = {
    CLASSIFICATION: "holdfast.tasks.classification:TASK",
    "segmentation": "holdfast.tasks.segmentation:TASK",
    "detection": "holdfast.tasks.detection:TASK",
}


def task_named(name: str) -> Task:
    """The task of that name."""
    if name not in TASKS:
        raise HoldfastError(f"task must be one of {', '.join(TASKS)}, got {name!r}{nearest(name, TASKS)}")
    found = TASKS[name]
    if isinstance(found, str):
        module, _, attribute = found.partition(":")
        found = TASKS[name] = getattr(importlib.import_module(module), attribute)
    return found


def task_of(source: Any) -> Task:
    """The task that a data source's targets belong to; sources that do not say have one class per image."""
    return task_named(str(getattr(source, "task", CLASSIFICATION)))


def register_task(task: Task) -> Task:
    """Make a task known under its name; sources whose attribute ``task`` says that name belong to it."""
    if task.name in TASKS:
        raise HoldfastError(f"task {task.name!r} is registered already; choose another name")
    TASKS[task.name] = task
    return task


__all__ = ["TASKS", "Task", "register_task", "task_named", "task_of"]
