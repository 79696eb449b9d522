"""Dry run of an evaluation that stops early: passes that usual scores need, by the time of the real runner for each."""

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from holdfast.evaluation.anytime import Search, make_search
from holdfast.evaluation.round_runner import run_parts
from holdfast.evaluation.rounds import Part, Pick
from holdfast.evaluation.setup import PreparedEvaluation
from holdfast.evaluation.until import DEVIATION, DEVIATION_OF_MEANS, OF_BASELINE, Goal, Until
from holdfast.records.round_files import Measured
from holdfast.runtime.device import core_count
from holdfast.runtime.dry_run import NOTHING, DryRunReport, Seconds, human_seconds
from holdfast.runtime.progress import clock

TRYING = 6.0  # seconds
ANSWER = 0.47  # standard deviation of an answer of any image in any cell, 0.47² = p(1 − p) at two thirds correct


@dataclass
class _Silent:
    """A progress display that shows nothing."""

    def advance_images(self, count: int) -> None:
        """Do nothing."""

    def finish_unit(self, cell: object, sums: object) -> None:
        """Do nothing."""


def rounds_report(prepared: PreparedEvaluation, until: Until, full: DryRunReport, start: Seconds) -> DryRunReport:
    """The report of an evaluation that stops early, from that of the full one."""
    search = make_search(prepared, until)
    passes, done = forecast_passes(search), _passes_done(prepared)
    remaining, each = max(0, passes - done), _time_per_pass(prepared, search)
    spent = start + Seconds(each.processor * remaining, _wall(each, prepared.work.workers) * remaining)
    if until.seconds is not None:
        share = min(1.0, until.seconds / max(spent.wall, 1e-9))
        spent = Seconds(spent.processor * share, spent.wall * share)
    total = len(search.rounds.cells) + (search.rounds.clean is not None)
    counts = {"images": search.images, "cells": total, f"of {total * search.images:,} passes": passes}
    wanted = " and ".join(_words(goal) for goal in search.goals if goal.width) or "the end of the budget"
    remark = (
        f"full: {human_seconds(full.spent.processor)}, {clock(full.spent.wall)} here; "
        f"to {wanted}: about {human_seconds(spent.processor)}, {clock(spent.wall)} here, if the scores vary as usual"
    )
    size = int(full.size * min(1.0, passes / max(1, total * search.images)))
    return DryRunReport(full.what, counts, size, spent, full.at_least, {}, (remark, *search.notes()))


def forecast_passes(search: Search) -> int:
    """Passes that the goals need if images vary as they usually do."""
    rounds, images = search.rounds, search.images
    depth = {cell: float(min(rounds.first, images)) for cell in rounds.cells}
    clean = 0.0
    for goal in search.goals:
        cells = [cell for cell in rounds.cells if goal.common or search.names[cell] in goal.cells]
        needed = _answers_needed(goal, len(cells) or 1, images, of_these=search.until.of_these_images)
        for cell in cells:
            depth[cell] = max(depth[cell], min(images, needed / len(cells)))
        clean = max(clean, needed) if not cells else clean
    corrupted = sum(depth.values())
    clean = min(images, max(clean, corrupted)) if rounds.clean is not None else 0.0
    passes = math.ceil(corrupted + clean)
    return min(passes, search.until.passes) if search.until.passes is not None else passes


def _answers_needed(goal: Goal, cells: int, images: int, *, of_these: bool) -> float:
    """Answers in so many cells that bring the interval to the goal; all of them if none do."""
    total = float(cells * images)
    if not goal.width:
        return total
    width = goal.width / (1 if goal.formula.unit == "%" else OF_BASELINE) / 196
    whole, between = (DEVIATION**2, 0.0) if cells == 1 else (ANSWER**2, DEVIATION_OF_MEANS**2)
    ends = 1 / total if of_these else 0.0  # of these images, n answers have the variance times 1 − n / total
    needed = whole / (width**2 + whole * ends)
    if needed > images:  # further answers are of the same images: the variance is between / images + rest / n
        rest, common = whole - between, between / images
        excess = width**2 + rest * ends - common
        root = math.sqrt(excess**2 + 4 * common * ends * rest)
        needed = 2 * rest / (excess + root) if excess + root > 0 else total
    return min(total, needed)


def _words(goal: Goal) -> str:
    return f"±{goal.width:g}" if goal.common else f"{goal.formula.label} ±{goal.width:g}"


def _passes_done(prepared: PreparedEvaluation) -> int:
    work = prepared.work
    measured = Measured(work.folder, work.fingerprint, prepared.normalized_model.views)
    measured.read_new()
    units = [key for key in work.units() if work.path(key).exists()]
    in_units = sum(len(work.plan.rows(shard, work.shard_size)) for shard, _ in units)
    return in_units + sum(len(part.all_rows) for name in measured.parts if (part := measured.of(name)) is not None)


def _time_per_pass(prepared: PreparedEvaluation, search: Search) -> Seconds:
    """Run a few images in random cells, in this process; every image in one cell, and clean."""
    rounds, draws = search.rounds, np.random.default_rng(0)
    cells = draws.permutation(np.repeat(rounds.cells, 8))
    images = draws.integers(0, search.images, len(cells))
    pairs = enumerate(zip(cells.tolist(), images.tolist(), strict=True))
    parts = [_part(number, cell, row, search) for number, (cell, row) in pairs]
    few = replace(prepared.work, workers=0, batch_size=min(prepared.work.batch_size, 8))
    made = run_parts(
        few,
        parts,
        rounds.clean,
        normalized_model=prepared.normalized_model,
        steps=prepared.steps,
        progress=_Silent(),
    )
    passes, begin, spent = 0, _clock(), NOTHING
    for number, (part, _) in enumerate(made):
        if number == 0:  # the first batch is slower
            begin = _clock()
            continue
        passes, spent = passes + part.passes, _clock() + begin.times(-1)
        if spent.wall > TRYING:
            break
    made.close()
    return spent.times(1 / max(passes, 1))


def _part(number: int, cell: int, row: int, search: Search) -> Part:
    return Part(number, 0, (Pick(cell, (row,), (row,) if search.rounds.clean is not None else ()),))


def _clock() -> Seconds:
    return Seconds(time.process_time(), time.perf_counter())


def _wall(each: Seconds, workers: int) -> float:
    """Time by the clock per pass, with so many workers."""
    return each.wall if workers == 0 else max(each.wall / (workers + 1), each.processor / core_count())
