"""Tasks: classification, segmentation, detection, and registered ones. A data source names its task.

One file per task and one row below; :func:`register_task` adds a custom task.
"""

import importlib
import warnings
from typing import Any

from holdfast.errors import HoldfastError, nearest
from holdfast.records.header import CLASSIFICATION
from holdfast.tasks.base import Task

# module of each task, imported on first use, so that reading records needs no torch
TASKS: dict[str, str | Task] = {
    CLASSIFICATION: "holdfast.tasks.classification:TASK",
    "segmentation": "holdfast.tasks.segmentation:TASK",
    "detection": "holdfast.tasks.detection:TASK",
}


def task_named(name: str) -> Task:
    """The registered task of this name."""
    if name not in TASKS:
        raise HoldfastError(f"task must be one of {', '.join(TASKS)}, got {name!r}{nearest(name, TASKS)}")
    found = TASKS[name]
    if isinstance(found, str):
        module, _, attribute = found.partition(":")
        found = TASKS[name] = getattr(importlib.import_module(module), attribute)
    return found


def task_of(source: Any) -> Task:
    """The task of a data source, by its attribute ``task``; classification without one."""
    return task_named(str(getattr(source, "task", CLASSIFICATION)))


def register_task(task: Task) -> Task:
    """Register a task under its name, to which the attribute ``task`` of data sources refers."""
    if task.name in TASKS:
        raise HoldfastError(f"task {task.name!r} is already registered: choose another name")
    old = getattr(task, "together", None)  # the attribute's old name
    if old is not None and not hasattr(task, "batched"):
        warnings.warn(f"{type(task).__name__}.together is now batched", DeprecationWarning, stacklevel=2)
        task.batched = bool(old)
    TASKS[task.name] = task
    return task


__all__ = ["TASKS", "Task", "register_task", "task_named", "task_of"]
