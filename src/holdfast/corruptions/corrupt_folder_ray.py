"""Corrupting a folder on a Ray cluster: each task calls ``corrupt_file`` for some images, as a local process does."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import cv2

from holdfast.corruptions.corrupt_folder import (
    FolderSettings,
    KindAtSeverity,
    Outcome,
    corrupt_file,
    is_complete,
)
from holdfast.runtime.gather import Files, check_shared, read_files, task_folder, write_files
from holdfast.runtime.ray import Cluster, tasks_on

TASKS_PER_SLOT = 8
MOST_FILES = 2000  # files per task; with --gather a task returns all of them at once

Cells = Sequence[KindAtSeverity]


def run_on_ray(
    source: Path, target: Path, images: list[str], cells: Cells, settings: FolderSettings, *, cluster: Cluster
) -> Iterator[Outcome]:
    """Corrupt the images on a cluster and yield their outcomes as they finish."""
    shared = None if cluster.gather else target.absolute()
    if cluster.gather:  # the nodes do not see existing files
        there, images = _finished_images(target, images, cells, settings)
        yield from there
    with tasks_on(cluster) as tasks:
        size = max(1, min(MOST_FILES // len(cells), -(-len(images) // (TASKS_PER_SLOT * tasks.slots))))
        for start in range(0, len(images), size):
            part = images[start : start + size]
            tasks.submit(part, corrupt_files, source.absolute(), shared, part, cells, settings)
        for _, (outcomes, files) in tasks.results():
            write_files(target, files)
            yield from outcomes


def corrupt_files(
    source: Path, target: Path | None, images: Sequence[str], cells: Cells, settings: FolderSettings
) -> tuple[list[Outcome], Files]:
    """Corrupt some images at all cells in a worker, into the shared folder or, without one, as bytes."""
    cv2.setNumThreads(1)
    check_shared(source)
    with task_folder(target) as place:
        outcomes = [corrupt_file(source, place, relative, cells, settings) for relative in images]
        return outcomes, read_files(place, place.rglob("*")) if target is None else {}


def _finished_images(
    target: Path, images: list[str], cells: Cells, settings: FolderSettings
) -> tuple[list[Outcome], list[str]]:
    places = [target / settings.place(cell) for cell in cells]
    todo = [
        relative
        for relative in images
        if not all(is_complete(place / settings.name(relative), settings) for place in places)
    ]
    left = set(todo)
    return [Outcome(relative, found=len(cells)) for relative in images if relative not in left], todo
