"""Dry run of corrupting a folder: estimates files, time and disk space from a few of its images."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.corruptions.corrupt_folder import FolderSettings, KindAtSeverity, check_folder, corrupt_file
from holdfast.runtime.cores import core_count
from holdfast.runtime.dry_run import NOTHING, DryRunReport, Seconds, spent, time_work

SECONDS, MOST = 5.0, 64  # limits of the measurement: time and images
COUNTED = 100_000  # up to this number of files each is checked, above it only a sample


def dry_run_report(
    source: Path, target: Path, *, cells: Sequence[KindAtSeverity], settings: FolderSettings, workers: int
) -> DryRunReport:
    """Corrupt a few images into a temporary folder and extrapolate to all of them."""
    begin = time.perf_counter()
    images = check_folder(source, target, settings)
    start = Seconds(spent(), time.perf_counter() - begin)
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        each, size = _time_images(source, Path(folder), _spread_sample(images, MOST), cells, settings)
    there = _share_there(target, images, cells, settings)
    files = len(images) * len(cells)
    work = each.times(len(images) * (1 - there))
    wall = max(work.wall / workers, work.processor / core_count())
    counts = {"images": len(images), "cells": len(cells), "files": files}
    if there:
        counts["of them there already" if files <= COUNTED else "of them there already, about"] = round(files * there)
    return DryRunReport(
        f"would corrupt {source} into {target}",
        counts,
        int(size * len(images)),
        start + Seconds(work.processor, wall),
        parts={"starting": start.processor, "corrupting": work.processor},
    )


def _time_images(
    source: Path, folder: Path, images: Sequence[str], cells: Sequence[KindAtSeverity], settings: FolderSettings
) -> tuple[Seconds, float]:
    """Time and bytes per image; the first image is a warm-up and counts only if it is slow."""
    done, total, deadline = 0, NOTHING, time.perf_counter() + SECONDS
    for number, relative in enumerate(images):
        took, _ = time_work(corrupt_file, source, folder, relative, cells, settings)
        if number == 0 and len(images) > 1 and took.wall < SECONDS / 2:
            continue
        total, done = total + took, done + 1
        if time.perf_counter() > deadline:
            break
    files = [path for path in folder.rglob("*") if path.is_file()]
    tried = len(files) / len(cells) or 1
    return total.times(1 / max(done, 1)), sum(path.stat().st_size for path in files) / tried


def _share_there(
    target: Path, images: Sequence[str], cells: Sequence[KindAtSeverity], settings: FolderSettings
) -> float:
    """The fraction of the files that exist already."""
    if not target.is_dir():
        return 0.0
    sample = _spread_sample(images, max(1, COUNTED // len(cells)))
    places = [target / settings.place(cell) for cell in cells]
    there = sum((place / settings.name(relative)).is_file() for relative in sample for place in places)
    return there / (len(sample) * len(cells))


def _spread_sample(images: Sequence[str], count: int) -> Sequence[str]:
    """``count`` images, evenly spread."""
    return images if len(images) <= count else [images[i * len(images) // count] for i in range(count)]
