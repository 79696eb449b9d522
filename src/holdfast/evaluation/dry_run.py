"""Dry run of an evaluation: its plan, and a time estimate from timing its parts on a few images."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.evaluation.attack_cells import fitted_corruptors
from holdfast.evaluation.loader import Chunk, Chunks, Failure, Job
from holdfast.evaluation.plan import Plan
from holdfast.evaluation.predict_chunks import ChunkPredictor, frames
from holdfast.evaluation.progress import ProgressDisplay
from holdfast.evaluation.setup import EvaluationRequest, PreparedEvaluation, prepare_evaluation
from holdfast.evaluation.unit_writer import UnitWriter
from holdfast.evaluation.work import Work
from holdfast.records.shard_files import read_unit
from holdfast.runtime.device import core_count
from holdfast.runtime.dry_run import NOTHING, DryRunReport, Seconds, spent, time_work

MAKING, PREDICTING, ATTACKING = 3.0, 3.0, 15.0  # seconds spent on timing each part
MOST = 16  # images that are timed


@dataclass(frozen=True)
class Costs:
    """Time per image: to make it for all plain cells, to predict it in them, and to attack it in all attack cells."""

    making: Seconds = NOTHING
    looking: Seconds = NOTHING
    attacking: Seconds = NOTHING
    once: Seconds = NOTHING  # fitting before the units, independent of the number of images
    row_bytes: float = 0.0
    unit_bytes: float = 0.0
    at_least: bool = False

    def of(self, images: float) -> dict[str, Seconds]:
        """Time by part for this many images in every cell."""
        return {
            "reading and corrupting": self.making.times(images),
            "the model": self.looking.times(images),
            **({"attacks": self.attacking.times(images) + self.once} if self.attacking.wall else {}),
        }


def dry_run_report(request: EvaluationRequest) -> DryRunReport:
    """Prepare an evaluation, time its parts on a few images, and measure nothing."""
    begin = time.perf_counter()
    with prepare_evaluation(request) as prepared:
        start = Seconds(spent(), time.perf_counter() - begin)
        work, plan, costs = prepared.work, prepared.work.plan, costs_of(prepared)
        units = work.units()
        todo = [key for key in units if not work.path(key).exists()]
        images = sum(len(plan.rows(shard, work.shard_size)) for shard, _ in todo) / max(len(plan.cells), 1)
        parts = costs.of(images)
        total = start + Seconds(sum(part.processor for part in parts.values()), _wall(parts, work.workers))
        counts = {"images": len(plan.ids), "cells": len(plan.cells), "units": len(units)}
        if len(todo) < len(units):
            counts["of them finished"] = len(units) - len(todo)
        return DryRunReport(
            f"would evaluate {prepared.header['model']} on {prepared.header['data']} into {work.folder}",
            counts,
            int(len(plan.ids) * len(plan.cells) * costs.row_bytes + len(units) * costs.unit_bytes),
            total,
            costs.at_least,
            {"starting": start.processor, **{name: part.processor for name, part in parts.items()}},
            ("some attacks take longer than the dry run allows: their time is a lower bound",)
            if costs.at_least
            else (),
        )


def costs_of(prepared: PreparedEvaluation) -> Costs:
    """Time the parts of an evaluation in this process."""
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        plain = [number for number, cell in enumerate(prepared.work.plan.cells) if cell.attack is None]
        attacks = [number for number, cell in enumerate(prepared.work.plan.cells) if cell.attack is not None]
        costs = _plain(prepared, plain, Path(folder)) if plain else Costs()
        return _attacks(prepared, attacks, Path(folder), costs) if attacks else costs


def _plain(prepared: PreparedEvaluation, cells: Sequence[int], folder: Path) -> Costs:
    """Time one image to warm up, then as many as the time budget allows."""
    first, chunks = time_work(_make_chunks, _sample(prepared, 1, folder), prepared, cells)
    count = int(min(MAKING / max(first.wall, 1e-6), MOST, len(prepared.work.plan.ids)))
    making, work = first, _sample(prepared, 1, folder)
    if count >= 2:
        work = _sample(prepared, count, folder)
        making, chunks = time_work(_make_chunks, work, prepared, cells)
        making = making.times(1 / count)
    looking = _prediction_time(work, prepared, [chunk for chunk in chunks if chunk.images is not None])
    per_row, fixed = _bytes(folder)
    return Costs(making, looking, row_bytes=per_row, unit_bytes=fixed)


def _prediction_time(work: Work, prepared: PreparedEvaluation, chunks: list[Chunk]) -> Seconds:
    """Time per image of prediction and writing in all cells, from as many batches as the time budget allows."""
    if not chunks:
        return NOTHING
    writer = _unit_writer(work, prepared)
    prepared.normalized_model.predict_bytes(chunks[0].images.flatten(0, -4)[:1])  # warm-up: the first pass is slower
    total, seen, deadline = NOTHING, 0, time.perf_counter() + PREDICTING
    for batch in _batches(chunks, work.batch_size if work.plan.task.batched else 1):
        took, _ = time_work(writer.predict_batch, batch)
        total, seen = total + took, seen + frames(batch)
        if time.perf_counter() > deadline:
            break
    return total.times(frames(chunks) / seen / len(work.plan.ids))


def _attacks(prepared: PreparedEvaluation, cells: Sequence[int], folder: Path, costs: Costs) -> Costs:
    """Time one image under every attack within the budget, scaled to the time per image of an attack batch."""
    work, each = _sample(prepared, 1, folder), ATTACKING / len(cells)
    chunks = _make_chunks(work, prepared, cells)
    total, once, cut = NOTHING, NOTHING, False
    cheaper = _batch_speedup(prepared, work, chunks)
    for number in cells:
        mine = [chunk for chunk in chunks if chunk.cell == number]
        with _at_most(prepared, each) as up:
            fitting, corruptors = time_work(_fit_corruption_models, prepared, work, number)
            once += fitting
            writer = _unit_writer(work, prepared, corruptors)
            took, _ = time_work(_keep_all, writer, mine)
            total += took.times(cheaper)
        if up:
            cut, total = True, total + up[0].times(cheaper)
    per_row, fixed = _bytes(folder)
    return replace(
        costs,
        attacking=total,
        once=once,
        at_least=cut,
        row_bytes=costs.row_bytes or per_row,
        unit_bytes=costs.unit_bytes or fixed,
    )


def _keep_all(writer: UnitWriter, chunks: Sequence[Chunk]) -> None:
    for chunk in chunks:
        writer.keep(chunk)


def _fit_corruption_models(prepared: PreparedEvaluation, work: Work, number: int) -> dict:
    return fitted_corruptors(
        prepared.work.plan,
        [prepared.work.plan.cells[number]],  # with all its images
        prepared.normalized_model,
        steps=prepared.steps,
        seed=work.seed,
        batch_size=work.attack_batch_size,
        folder=work.folder,
        processes=prepared.processes,
    )


class _TimeIsUp(Exception):
    pass


@contextmanager
def _at_most(prepared: PreparedEvaluation, seconds: float) -> Iterator[list[Seconds]]:
    """Leave the block at the first forward pass after this many seconds; the list then holds the time spent."""
    up: list[Seconds] = []
    begin, processor = time.perf_counter(), time.process_time()

    def stop(*_: object) -> None:
        if time.perf_counter() > begin + seconds:
            raise _TimeIsUp

    handle = prepared.normalized_model.pixels.model.register_forward_pre_hook(stop)
    try:
        yield up
    except _TimeIsUp:
        up.append(Seconds(time.process_time() - processor, time.perf_counter() - begin))
    finally:
        handle.remove()


def _batch_speedup(prepared: PreparedEvaluation, work: Work, chunks: Sequence[Chunk]) -> float:
    """Ratio of the model's time per image in an attack batch to its time for a single image."""
    images = next((chunk.images for chunk in chunks if chunk.images is not None), None)
    if images is None or not work.plan.task.batched:
        return 1.0
    one = images.flatten(0, -4)[:1]
    prepared.normalized_model.predict_bytes(one)
    alone, _ = time_work(prepared.normalized_model.predict_bytes, one)
    count = int(max(1, min(work.attack_batch_size, 1.0 / max(alone.wall, 1e-6))))
    batched, _ = time_work(prepared.normalized_model.predict_bytes, one.expand(count, -1, -1, -1))
    return min(1.0, batched.processor / count / max(alone.processor, 1e-9))


def _sample(prepared: PreparedEvaluation, count: int, folder: Path) -> Work:
    """The same work on a few evenly spaced images, in one shard, written to another folder."""
    plan = prepared.work.plan
    rows = np.unique(np.linspace(0, len(plan.ids) - 1, count).astype(int))
    cells = tuple(replace(cell, places=np.array([cell.place(row) for row in rows])) for cell in plan.cells)
    few = Plan(
        plan.task, tuple(plan.ids[row] for row in rows), plan.truth[rows], plan.strata[rows], plan.classes, cells
    )
    return replace(prepared.work, plan=few, folder=folder, shard_size=len(rows))


def _make_chunks(work: Work, prepared: PreparedEvaluation, cells: Sequence[int]) -> list[Chunk]:
    found = list(
        Chunks(work.plan, [Job(0, tuple(cells))], steps=prepared.steps, seed=work.seed, shard_size=work.shard_size)
    )
    for chunk in found:
        if isinstance(chunk, Failure):
            raise HoldfastError(chunk.sentence)
    return [chunk for chunk in found if isinstance(chunk, Chunk)]


def _batches(chunks: Sequence[Chunk], size: int) -> Iterator[list[Chunk]]:
    batch: list[Chunk] = []
    for chunk in chunks:
        if batch and frames([*batch, chunk]) > size:
            yield batch
            batch = []
        batch.append(chunk)
    yield batch


def _unit_writer(work: Work, prepared: PreparedEvaluation, corruptors: dict | None = None) -> UnitWriter:
    predictor = ChunkPredictor(work, prepared.normalized_model, corruptors)
    return UnitWriter(work, predictor, ProgressDisplay(total=0, imagenet=False, show=False))


def _bytes(folder: Path) -> tuple[float, float]:
    """Bytes per image and fixed bytes per unit, from the units that were timed."""
    per_row, fixed = [], []
    for path in folder.glob("*.[0-9]*.safetensors"):
        unit = read_unit(path)
        arrays = sum(
            part.nbytes for each in unit.arrays.values() for part in (each if isinstance(each, tuple) else (each,))
        )
        rows = max(len(unit.rows), 1)
        per_row.append(arrays / rows + unit.rows.itemsize)
        fixed.append(path.stat().st_size - per_row[-1] * rows)
    return (float(np.mean(per_row)), float(np.mean(fixed))) if fixed else (0.0, 0.0)


def _wall(parts: dict[str, Seconds], workers: int) -> float:
    """Wall time: workers make images while the model predicts; bounded below by the processor time over all cores."""
    making = parts["reading and corrupting"].wall
    rest = sum(part.wall for name, part in parts.items() if name != "reading and corrupting")
    if workers == 0:
        return making + rest
    return max(making / workers, rest, sum(part.processor for part in parts.values()) / core_count())
