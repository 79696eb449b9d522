"""What an evaluation would do and how long it would take: its own parts, timed on a few images."""

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
from holdfast.evaluation.progress import ProgressDisplay
from holdfast.evaluation.runner import UnitWriter, Work, frames
from holdfast.evaluation.setup import EvaluationRequest, PreparedEvaluation, prepare_evaluation
from holdfast.records.shard_files import read_unit
from holdfast.runtime.device import core_count
from holdfast.runtime.dry_run import NOTHING, DryRunReport, Seconds, spent, time_work

MAKING, LOOKING, ATTACKING = 3.0, 3.0, 15.0  # seconds that may be spent on measuring each
MOST = 16  # images that are tried


@dataclass(frozen=True)
class Costs:
    """What one image takes: to be made for all plain cells, to be looked at in them, to be attacked in all others."""

    making: Seconds = NOTHING
    looking: Seconds = NOTHING
    attacking: Seconds = NOTHING
    once: Seconds = NOTHING  # what is fitted before the units
    row_bytes: float = 0.0
    unit_bytes: float = 0.0
    at_least: bool = False

    def of(self, images: float) -> dict[str, Seconds]:
        """Of so many images in every cell."""
        return {
            "reading and corrupting": self.making.times(images),
            "the model": self.looking.times(images),
            **({"attacks": self.attacking.times(images) + self.once} if self.attacking.wall else {}),
        }


def dry_run_report(request: EvaluationRequest) -> DryRunReport:
    """Begin an evaluation, time its parts on a few images, and measure nothing."""
    begin = time.perf_counter()
    with prepare_evaluation(request) as errand:
        start = Seconds(spent(), time.perf_counter() - begin)
        work, plan, costs = errand.work, errand.work.plan, costs_of(errand)
        units = work.units()
        todo = [key for key in units if not work.path(key).exists()]
        images = sum(len(plan.rows(shard, work.shard_size)) for shard, _ in todo) / max(len(plan.cells), 1)
        parts = costs.of(images)
        total = start + Seconds(sum(part.processor for part in parts.values()), _wall(parts, work.workers))
        counts = {"images": len(plan.ids), "cells": len(plan.cells), "units": len(units)}
        if len(todo) < len(units):
            counts["of them finished"] = len(units) - len(todo)
        return DryRunReport(
            f"would evaluate {errand.header['model']} on {errand.header['data']} into {work.folder}",
            counts,
            int(len(plan.ids) * len(plan.cells) * costs.row_bytes + len(units) * costs.unit_bytes),
            total,
            costs.at_least,
            {"starting": start.processor, **{name: part.processor for name, part in parts.items()}},
            ("some attacks take longer than a dry run may: what they need is a lower bound",) if costs.at_least else (),
        )


def costs_of(errand: PreparedEvaluation) -> Costs:
    """Time the parts of an evaluation in this process."""
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        plain = [number for number, cell in enumerate(errand.work.plan.cells) if cell.attack is None]
        attacks = [number for number, cell in enumerate(errand.work.plan.cells) if cell.attack is not None]
        costs = _plain(errand, plain, Path(folder)) if plain else Costs()
        return _attacks(errand, attacks, Path(folder), costs) if attacks else costs


def _plain(errand: PreparedEvaluation, cells: Sequence[int], folder: Path) -> Costs:
    """A first image to warm up, or to be all there is; then as many as the time allows."""
    first, chunks = time_work(_make_chunks, _sample(errand, 1, folder), errand, cells)
    count = int(min(MAKING / max(first.wall, 1e-6), MOST, len(errand.work.plan.ids)))
    making, work = first, _sample(errand, 1, folder)
    if count >= 2:
        work = _sample(errand, count, folder)
        making, chunks = time_work(_make_chunks, work, errand, cells)
        making = making.times(1 / count)
    looking = _looked_at(work, errand, [chunk for chunk in chunks if chunk.images is not None])
    per_row, fixed = _bytes(folder)
    return Costs(making, looking, row_bytes=per_row, unit_bytes=fixed)


def _looked_at(work: Work, errand: PreparedEvaluation, chunks: list[Chunk]) -> Seconds:
    """What the model and the desk take for one image in all cells, from as many batches as the time allows."""
    if not chunks:
        return NOTHING
    desk = _desk(work, errand)
    errand.judge.look(chunks[0].images.flatten(0, -4)[:1])  # the first pass is slower than all others
    total, seen, deadline = NOTHING, 0, time.perf_counter() + LOOKING
    for batch in _batches(chunks, work.batch_size if work.plan.task.together else 1):
        took, _ = time_work(desk.look, batch)
        total, seen = total + took, seen + frames(batch)
        if time.perf_counter() > deadline:
            break
    return total.times(frames(chunks) / seen / len(work.plan.ids))


def _attacks(errand: PreparedEvaluation, cells: Sequence[int], folder: Path, costs: Costs) -> Costs:
    """One image under every attack, as long as the time allows; a batch of them is as much cheaper as the model is."""
    work, each = _sample(errand, 1, folder), ATTACKING / len(cells)
    chunks = _make_chunks(work, errand, cells)
    total, once, cut = NOTHING, NOTHING, False
    cheaper = _in_batches(errand, work, chunks)
    for number in cells:
        mine = [chunk for chunk in chunks if chunk.cell == number]
        with _at_most(errand, each) as up:
            fitting, corruptors = time_work(_fit_corruption_models, errand, work, number)
            once += fitting
            desk = _desk(work, errand, corruptors)
            took, _ = time_work(_keep_all, desk, mine)
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


def _keep_all(desk: UnitWriter, chunks: Sequence[Chunk]) -> None:
    for chunk in chunks:
        desk.keep(chunk)


def _fit_corruption_models(errand: PreparedEvaluation, work: Work, number: int) -> dict:
    return fitted_corruptors(
        errand.work.plan,
        [errand.work.plan.cells[number]],  # with all its images
        errand.judge,
        steps=errand.steps,
        seed=work.seed,
        batch_size=work.attack_batch_size,
        folder=work.folder,
        processes=errand.processes,
    )


class _TimeIsUp(Exception):
    pass


@contextmanager
def _at_most(errand: PreparedEvaluation, seconds: float) -> Iterator[list[Seconds]]:
    """Leave the block when the model is asked after so many seconds; the list then holds the time that was spent."""
    up: list[Seconds] = []
    begin, processor = time.perf_counter(), time.process_time()

    def stop(*_: object) -> None:
        if time.perf_counter() > begin + seconds:
            raise _TimeIsUp

    handle = errand.judge.pixels.model.register_forward_pre_hook(stop)
    try:
        yield up
    except _TimeIsUp:
        up.append(Seconds(time.process_time() - processor, time.perf_counter() - begin))
    finally:
        handle.remove()


def _in_batches(errand: PreparedEvaluation, work: Work, chunks: Sequence[Chunk]) -> float:
    """What an image costs the model in a batch of an attack, as a share of what it costs alone."""
    images = next((chunk.images for chunk in chunks if chunk.images is not None), None)
    if images is None or not work.plan.task.together:
        return 1.0
    one = images.flatten(0, -4)[:1]
    errand.judge.look(one)
    alone, _ = time_work(errand.judge.look, one)
    count = int(max(1, min(work.attack_batch_size, 1.0 / max(alone.wall, 1e-6))))
    together, _ = time_work(errand.judge.look, one.expand(count, -1, -1, -1))
    return min(1.0, together.processor / count / max(alone.processor, 1e-9))


def _sample(errand: PreparedEvaluation, count: int, folder: Path) -> Work:
    """The same work on a few images that lie far apart, in one shard, written elsewhere."""
    plan = errand.work.plan
    rows = np.unique(np.linspace(0, len(plan.ids) - 1, count).astype(int))
    cells = tuple(replace(cell, places=np.array([cell.place(row) for row in rows])) for cell in plan.cells)
    few = Plan(
        plan.task, tuple(plan.ids[row] for row in rows), plan.truth[rows], plan.strata[rows], plan.classes, cells
    )
    return replace(errand.work, plan=few, folder=folder, shard_size=len(rows))


def _make_chunks(work: Work, errand: PreparedEvaluation, cells: Sequence[int]) -> list[Chunk]:
    found = list(
        Chunks(work.plan, [Job(0, tuple(cells))], steps=errand.steps, seed=work.seed, shard_size=work.shard_size)
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


def _desk(work: Work, errand: PreparedEvaluation, corruptors: dict | None = None) -> UnitWriter:
    return UnitWriter(work, errand.judge, ProgressDisplay(total=0, imagenet=False, show=False), corruptors or {})


def _bytes(folder: Path) -> tuple[float, float]:
    """What an image adds to a unit, and what a unit takes besides, from the units that were tried."""
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
    """Workers make images while the model looks; nothing is quicker than all cores together."""
    making = parts["reading and corrupting"].wall
    rest = sum(part.wall for name, part in parts.items() if name != "reading and corrupting")
    if workers == 0:
        return making + rest
    return max(making / workers, rest, sum(part.processor for part in parts.values()) / core_count())
