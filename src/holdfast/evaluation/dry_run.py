"""Dry run of an evaluation: its plan, and the time of the real runner on a few images, in a temporary folder.

Cells that are not attacked share an image that is decoded once, so they are tried together, in random order: what is
finished when the time is up is a fair sample of all. Each attack is tried alone.
"""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch

from holdfast.cells import CellSpec
from holdfast.evaluation.dry_run_rounds import rounds_report
from holdfast.evaluation.plan import Plan
from holdfast.evaluation.runner import run_units
from holdfast.evaluation.setup import EvaluationRequest, PreparedEvaluation, fit_corruption_models, prepare_evaluation
from holdfast.evaluation.until import Until
from holdfast.evaluation.work import Key, Work
from holdfast.records.shard_files import read_unit
from holdfast.runtime.cores import core_count
from holdfast.runtime.dry_run import NOTHING, DryRunReport, Seconds, spent

PLAIN, ATTACKING = 8.0, 8.0  # seconds for trying the cells without attacks, and all attacks
FORWARD = 2.0  # seconds that one batch may take
BATCHED = 2  # an image in a batch takes about half as long as alone


@dataclass(frozen=True)
class Costs:
    """Time per image: to make it for all plain cells, to predict it in them, and to attack it in all attack cells."""

    making: Seconds = NOTHING
    looking: Seconds = NOTHING
    attacking: Seconds = NOTHING
    finishing: Seconds = NOTHING  # a unit of a plain cell, whatever the number of its images
    once: Seconds = NOTHING  # fitting before the units, independent of the number of images
    row_bytes: float = 0.0
    unit_bytes: float = 0.0
    at_least: bool = False

    def of(self, plain: float, attacked: float, *, units: int) -> dict[str, Seconds]:
        """Time by part for so many images in every plain cell, in so many units, and in every attack cell."""
        return {
            "reading and corrupting": self.making.times(plain),
            "the model": self.looking.times(plain) + self.finishing.times(units),
            **({"attacks": self.attacking.times(attacked) + self.once} if self.attacking.wall else {}),
        }


def dry_run_report(request: EvaluationRequest, until: Until | None = None) -> DryRunReport:
    """Prepare an evaluation, run a few of its images, and keep nothing; ``until`` stops it early."""
    begin = time.perf_counter()
    with prepare_evaluation(request) as prepared:
        start = Seconds(spent(), time.perf_counter() - begin)
        work, plan, costs = prepared.work, prepared.work.plan, costs_of(prepared)
        units = work.units()
        todo = [key for key in units if not work.path(key).exists()]
        plain = [key for key in todo if plan.cells[key[1]].attack is None]
        images = _images(work, plain) / max(len(_plain(plan)), 1)
        attacked = _images(work, [key for key in todo if plan.cells[key[1]].attack]) / max(len(_attacks(plan)), 1)
        parts = costs.of(images, attacked, units=len(plain))
        total = start + Seconds(sum(part.processor for part in parts.values()), _wall(parts, work.workers))
        counts = {"images": len(plan.ids), "cells": len(plan.cells), "units": len(units)}
        if len(todo) < len(units):
            counts["of them finished"] = len(units) - len(todo)
        full = DryRunReport(
            f"would evaluate {prepared.header['model']} on {prepared.header['data']} into {work.folder}",
            counts,
            int(len(plan.ids) * len(plan.cells) * costs.row_bytes + len(units) * costs.unit_bytes),
            total,
            costs.at_least,
            {"starting": start.processor, **{name: part.processor for name, part in parts.items()}},
            ("some cells take longer than the dry run allows: their time is a lower bound",) if costs.at_least else (),
        )
        return full if until is None else rounds_report(prepared, until, full, start)


def costs_of(prepared: PreparedEvaluation) -> Costs:
    """Time the parts of an evaluation in this process."""
    plan, attacks = prepared.work.plan, _attacks(prepared.work.plan)
    with tempfile.TemporaryDirectory(prefix="holdfast-") as name:
        folder = Path(name)
        plain = _try(prepared, _plain(plan), folder, PLAIN) if _plain(plan) else Trial()
        attacking, once, cut, deadline = NOTHING, NOTHING, plain.cut, time.perf_counter() + ATTACKING
        for number, cell in enumerate(attacks):
            trial = _try(prepared, [cell], folder, (deadline - time.perf_counter()) / (len(attacks) - number))
            attacking, once, cut = attacking + trial.each, once + trial.once, cut or trial.cut
        making = plain.each + plain.model.times(-1)
        return Costs(making, plain.model, attacking, plain.finishing, once, *_bytes(folder), at_least=cut)


@dataclass(frozen=True)
class Trial:
    """Time per image in all cells that were tried, of it in the model, per unit, and of what is done once before."""

    each: Seconds = NOTHING
    model: Seconds = NOTHING
    finishing: Seconds = NOTHING
    once: Seconds = NOTHING
    cut: bool = False


def _try(prepared: PreparedEvaluation, cells: Sequence[int], folder: Path, seconds: float) -> Trial:
    """Run one image in one cell to warm up, then as many images in all cells as the time allows."""
    deadline, fitting = time.perf_counter() + seconds, _Stopwatch(prepared, seconds)
    corruptors: dict[str, Any] = {}
    with fitting:
        elsewhere = replace(prepared, work=replace(prepared.work, folder=folder))
        corruptors = fit_corruption_models(elsewhere, [(0, cell) for cell in cells])
    if fitting.up:
        return Trial(once=fitting.now(), cut=True)
    once = fitting.now() if corruptors else NOTHING
    few, attack = _sample(prepared, 1, folder), prepared.work.plan.cells[cells[0]].attack is not None
    first = _run(prepared, few, cells[:1], corruptors, deadline)
    if first.finished and first.until.wall < seconds / 10:  # the first pass is slower
        first = _run(prepared, few, cells[:1], corruptors, deadline)
    if not first.finished:
        return Trial(first.now(), once=once, cut=True)
    alone = len(cells) == 1
    most = min(few.attack_batch_size if attack else few.batch_size, len(prepared.work.plan.ids))
    # by the clock for attacks, which must be finished; of other cells, those that are finished in time will do
    one = first.until.wall if attack else min(first.until) * len(cells) / BATCHED
    count = int(min((deadline - time.perf_counter()) / max(one, 1e-6), most))
    if count < 2 and alone:
        return replace(first.trial(1, attack=attack), once=once)
    count = max(count, 1)
    batch = int(max(1, min(few.batch_size, FORWARD / max(min(first.in_model), 1e-6))))
    few = replace(_sample(prepared, count, folder), batch_size=batch)
    watch = _run(prepared, few, np.random.default_rng(0).permutation(cells).tolist(), corruptors, deadline)
    if watch.finished:
        return replace(watch.trial(count, len(cells), attack=attack), once=once)
    return replace(first.trial(1, len(cells), attack=attack), once=once, cut=not alone)


def _run(
    prepared: PreparedEvaluation, work: Work, cells: Sequence[int], corruptors: dict[str, Any], deadline: float
) -> "_Stopwatch":
    watch = _Stopwatch(prepared, deadline - time.perf_counter())
    keys = [(0, cell) for cell in cells]
    options: dict[str, Any] = {"normalized_model": prepared.normalized_model, "steps": prepared.steps}
    with watch:
        run_units(work, keys, progress=watch, corruptors=corruptors, **options)
    return watch


class _TimeIsUp(Exception):
    pass


@dataclass
class _Stopwatch:
    """Times a block, its finished units and its model; ends the block at the first forward pass after its time."""

    prepared: PreparedEvaluation
    seconds: float
    up: bool = False
    finished: int = 0
    until: Seconds = NOTHING  # the last unit was finished
    in_model: Seconds = NOTHING  # of what is finished
    finishing: Seconds = NOTHING  # from a unit's last image to its file
    _model: Seconds = NOTHING
    _begin: Seconds = NOTHING
    _before: Seconds = NOTHING
    _predicted: Seconds = NOTHING
    _handles: list[Any] = field(default_factory=list)

    def __enter__(self) -> "_Stopwatch":
        model = self.prepared.normalized_model.pixels.model
        self._handles = [
            model.register_forward_pre_hook(self._before_model),
            model.register_forward_hook(self._after_model),
        ]
        self._begin = _clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        for handle in self._handles:
            handle.remove()
        self.up = kind is _TimeIsUp
        return self.up

    def now(self) -> Seconds:
        """Time since the beginning."""
        return _clock() + self._begin.times(-1)

    def advance_images(self, count: int) -> None:
        """Remember when a unit's last image was predicted."""
        self._predicted = self.now()

    def finish_unit(self, cell: CellSpec, sums: np.ndarray | None) -> None:
        """Count a unit."""
        self.finished, self.until, self.in_model = self.finished + 1, self.now(), self._model
        self.finishing += self.until + self._predicted.times(-1)

    def trial(self, images: int, cells: int = 1, *, attack: bool) -> Trial:
        """Time per image in so many cells, and per unit, from units of so many images."""
        scale = cells / self.finished / images
        finishing = NOTHING if attack else self.finishing  # an attack begins with its unit's last image
        each = (self.until + finishing.times(-1)).times(scale)
        return Trial(each, self.in_model.times(scale), finishing.times(1 / self.finished))

    def _before_model(self, *_: object) -> None:
        self._before = _clock()
        if self._before.wall > self._begin.wall + self.seconds:
            raise _TimeIsUp

    def _after_model(self, *_: object) -> None:
        if self.prepared.normalized_model.device.type == "cuda":
            torch.cuda.synchronize(self.prepared.normalized_model.device)
        self._model += _clock() + self._before.times(-1)


def _clock() -> Seconds:
    return Seconds(time.process_time(), time.perf_counter())


def _plain(plan: Plan) -> list[int]:
    return [number for number, cell in enumerate(plan.cells) if cell.attack is None]


def _attacks(plan: Plan) -> list[int]:
    return [number for number, cell in enumerate(plan.cells) if cell.attack is not None]


def _images(work: Work, keys: Sequence[Key]) -> int:
    return sum(len(work.plan.rows(shard, work.shard_size)) for shard, _ in keys)


def _sample(prepared: PreparedEvaluation, count: int, folder: Path) -> Work:
    """The same work on a few evenly spaced images, in one shard and this process, written to another folder."""
    plan = prepared.work.plan
    rows = np.unique(np.linspace(0, len(plan.ids) - 1, count).astype(int))
    cells = tuple(replace(cell, places=np.array([cell.place(row) for row in rows])) for cell in plan.cells)
    ids = tuple(plan.ids[row] for row in rows)
    few = replace(plan, ids=ids, truth=plan.truth[rows], strata=plan.strata[rows], cells=cells)
    return replace(prepared.work, plan=few, folder=folder, shard_size=len(rows), workers=0)


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
