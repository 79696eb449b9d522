"""Anytime evaluation: measure in rounds until the scores are precise enough, or the budget is used.

Stopping as soon as an estimated half-width reaches its goal is the fixed-width sequential interval of Chow and Robbins
(1965), whose coverage tends to the nominal one: the interval at the end may be read like any other.
"""

import math
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.evaluation.order import FIRST_IMAGES, Order, stratified_order
from holdfast.evaluation.plan import Cell
from holdfast.evaluation.predict_chunks import ChunkPredictor
from holdfast.evaluation.progress import ProgressDisplay
from holdfast.evaluation.round_runner import MeasureParts, mark_parts, parts_here
from holdfast.evaluation.rounds import PART, Part, Rounds
from holdfast.evaluation.runner_ray import parts_on_ray
from holdfast.evaluation.setup import PreparedEvaluation
from holdfast.evaluation.until import (
    Estimate,
    Goal,
    Until,
    foreseen_formulas,
    images_needed,
    judge,
    resolve_goals,
    typical_half_width,
)
from holdfast.evaluation.work import cannot_write
from holdfast.metrics.summary import some
from holdfast.records.records import read_records
from holdfast.records.round_files import Measured


@dataclass(frozen=True, eq=False)
class Search:
    """What an anytime evaluation is to find out.

    Attributes:
        until: as it was asked for.
        goals: scores and their half-widths.
        rounds: the order of work.
        left_out: cells of other suites, which are not measured.
        names: names of all cells of the plan.
    """

    until: Until
    goals: tuple[Goal, ...]
    rounds: Rounds
    left_out: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def images(self) -> int:
        """Number of images of the data."""
        return len(self.rounds.order.images)

    def notes(self) -> Iterator[str]:
        """What is to be said before the start: goals out of reach, images that are too few, cells left out."""
        for goal in self.goals if not self.until.of_these_images else ():
            best = typical_half_width(goal, self.images)
            if best is not None and goal.width and best > goal.width:
                yield (
                    f"{self.images:,} images: for a typical model {goal.formula.label} is at best about ±{best:.1f}; "
                    f"if ±{goal.width:g} is out of reach, all passes are used (--of-these-images is about these only)"
                )
        if self.rounds.first > FIRST_IMAGES and self.images <= self.rounds.first:
            yield (
                f"{self.images:,} images: this score is biased with fewer than {self.rounds.first} per cell, "
                "so all passes are measured"
            )
        if self.left_out:
            yield f"not measured, because no goal names them: {some(self.left_out)}; evaluate without --until for these"


def make_search(prepared: PreparedEvaluation, until: Until) -> Search:
    """Find the goals' scores and the cells that take part; raises an error for goals that cannot be."""
    plan = prepared.work.plan
    formulas = foreseen_formulas(plan.task, [cell.spec for cell in plan.cells], prepared.header)
    goals = resolve_goals(until, formulas, task=plan.task, header=prepared.header)
    search = search_in(prepared, {goal.name: goal.cells for goal in goals}, until, goals=goals)
    if until.passes is not None and until.passes < (least := search.rounds.first_passes):
        raise HoldfastError(
            f"budget must be at least {least:,} passes, {search.rounds.depths[0]} images in every cell, "
            f"got {until.passes:,}"
        )
    return search


def search_in(
    prepared: PreparedEvaluation,
    scores: Mapping[str, Sequence[str]],
    until: Until,
    *,
    goals: Sequence[Goal] = (),
    among: Collection[str] | None = None,
) -> Search:
    """The search among all cells of the suites to which the cells of some scores belong, or those ``among`` them."""
    work, plan = prepared.work, prepared.work.plan
    predictor = ChunkPredictor(work, prepared.normalized_model)
    named = {cell.name: cell for cell in plan.cells}
    suites = set()
    for name, cells_of_score in scores.items():
        used = [named[cell] for cell in cells_of_score if cell in named]
        _check_cells(used, name, predictor)
        suites |= {_suite(cell) for cell in used}
    clean = next((number for number, cell in enumerate(plan.cells) if cell.spec.family == "clean"), None)
    corrupted = tuple(
        number
        for number, cell in enumerate(plan.cells)
        if number != clean
        and _suite(cell) in suites
        and not predictor.waits(cell)
        and (among is None or cell.name in among)
    )
    cells = corrupted or ((clean,) if clean is not None else ())
    images = stratified_order(plan.ids, plan.strata, seed=work.seed)
    first = plan.task.scoring.first_images or FIRST_IMAGES
    shared = prepared.processes.count > 1 or prepared.request.compute.cluster is not None
    passes = PART // 4 if shared else PART  # small parts, so that many processes share even a small round
    rounds = Rounds(Order(images, len(cells)), cells, clean if corrupted else None, first, passes)
    left_out = tuple(cell.name for number, cell in enumerate(plan.cells) if number not in (*cells, clean))
    return Search(until, tuple(goals), rounds, left_out, tuple(named))


def _check_cells(cells: Sequence[Cell], score: str, predictor: ChunkPredictor) -> None:
    waiting = [cell.name for cell in cells if predictor.waits(cell)]
    if waiting:
        raise HoldfastError(
            f"until cannot have the goal {score!r}: {waiting[0]} is measured in whole batches of images, "
            "evaluate it without until"
        )


def _suite(cell: Cell) -> str:
    return str(cell.definition.get("suite", cell.name))


@dataclass
class AnytimeRun:
    """An anytime evaluation at work.

    Attributes:
        prepared: the evaluation.
        search: what it is to find out.
        measured: content of the round files.
        done: which images are measured in which cells, (cells of the plan, images).
        progress: progress display.
        over: whether the budget is used.
    """

    prepared: PreparedEvaluation
    search: Search
    measured: Measured
    done: np.ndarray
    progress: ProgressDisplay
    over: bool = False
    _started: float = field(default_factory=time.monotonic)

    @property
    def cells(self) -> list[int]:
        """Numbers of the cells that take part."""
        rounds = self.search.rounds
        return [*rounds.cells, *(() if rounds.clean is None else (rounds.clean,))]

    @property
    def passes(self) -> int:
        """Passes that are measured in these cells."""
        return int(self.done[self.cells].sum())

    @property
    def complete(self) -> bool:
        """Whether every image is measured in every cell that takes part."""
        return bool(self.done[self.cells].all())

    def run(self) -> list[Estimate]:
        """Measure rounds until every goal is reached, all passes are done or the budget is used."""
        self.progress.expect(self.search.rounds.first_passes)
        estimates: list[Estimate] = []
        if begun := self._begun_goals():  # a round that was interrupted is completed before anything is judged
            with closing(self.rounds(begun)) as rounds:
                next(rounds, None)
        if self._first_round_done():
            estimates = self.judge()
        while not self.over and (goals := self._open_goals(estimates)):
            with closing(self.rounds(goals)) as rounds:
                for _ in rounds:
                    estimates = self.judge()
                    if self._open_goals(estimates) != goals:
                        break
        if self.over:
            estimates = self.judge()
            if not self._first_round_done():
                few = self.search.rounds.depths[0]
                self.progress.warn(f"stopped before every cell had {few} images: run the same command again to go on")
        if self.prepared.processes.first:
            self.measured.compact()  # the same files, however often it was interrupted
        self.prepared.processes.meet()
        return estimates

    def rounds(self, goals: Sequence[Sequence[int]]) -> Generator[int, None, None]:
        """Measure round after round of some goals, each the numbers of its cells; yields when one is complete."""
        work, processes = self.prepared.work, self.prepared.processes
        to_come = self.search.rounds.parts(goals, self.done)
        with self._measurer(goals) as measure:
            for number, parts in groupby(to_come, key=lambda part: part.round):
                for cells in measure(list(self._within_budget(parts)), self.progress):
                    with cannot_write(work.folder):
                        self.measured.write(cells)
                    mark_parts(self.done, work, cells)
                    if processes.count == 1 and self._late():
                        break
                processes.meet()
                mark_parts(self.done, work, self.measured.read_new())
                processes.meet()
                if processes.first:
                    self.measured.compact_if_many()
                self.over = self.over or processes.agree(self._late())
                if self.over:
                    return
                yield number

    def _measurer(self, goals: Sequence[Sequence[int]]) -> AbstractContextManager[MeasureParts]:
        rounds, prepared = self.search.rounds, self.prepared
        if prepared.request.compute.cluster is not None:
            return parts_on_ray(prepared, rounds.clean)
        return parts_here(prepared, rounds, goals, self.done.copy(), self.progress)

    def judge(self) -> list[Estimate]:
        """Estimate every goal's score from what is measured."""
        cells = [cell.name for cell in self.prepared.work.plan.cells]
        records = read_records(self.prepared.work.folder, cells=cells, rounds=self.measured)
        found = judge(records, self.search.goals, of_these_images=self.search.until.of_these_images)
        self._show(found)
        return found

    def _first_round_done(self) -> bool:
        return self.search.rounds.reached(self.cells, self.done) > 0

    def _begun_goals(self) -> list[tuple[int, ...]]:
        """Cells of the goals that have a round that is incomplete."""
        if not self._first_round_done():
            return []
        return [cells for cells in map(self._cells_of, self.search.goals) if self.search.rounds.begun(cells, self.done)]

    def _cells_of(self, goal: Goal) -> tuple[int, ...]:
        if goal.common:
            return tuple(self.cells)
        return tuple(number for number, cell in enumerate(self.prepared.work.plan.cells) if cell.name in goal.cells)

    def _open_goals(self, estimates: Sequence[Estimate]) -> list[tuple[int, ...]]:
        """Cells of the goals that are not reached and have images left; all cells in the first round."""
        if not self._first_round_done():
            return [tuple(self.cells)]
        reached = {estimate.goal.name for estimate in estimates if estimate.reached}
        cells = [self._cells_of(goal) for goal in self.search.goals if goal.name not in reached]
        return [each for each in cells if not self.done[list(each)].all()]

    def _within_budget(self, parts: Iterable[Part]) -> Iterator[Part]:
        spent, budget = self.passes, self.search.until.passes
        for part in parts:
            spent += part.passes
            if budget is not None and spent > budget:
                self.over = True
                return
            yield part

    def _late(self) -> bool:
        seconds = self.search.until.seconds
        return seconds is not None and time.monotonic() - self._started > seconds

    def _show(self, estimates: Sequence[Estimate]) -> None:
        total, images = self.done[self.cells].size, self.done.shape[1]
        further = 0.0
        for each in estimates:
            numbers = list(self._cells_of(each.goal))
            there = self.done[numbers].sum(axis=1)
            needed = min(images, images_needed(each, int(there.min())))
            further += 0 if each.reached else float(np.maximum(0, needed - there).sum())
        expected = total if not math.isfinite(further) else min(total, self.passes + int(further))
        self.progress.show_estimates(list(map(str, estimates)), expected=expected, passes=self.passes, total=total)
