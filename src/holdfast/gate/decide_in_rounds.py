"""A gate that stops early: both models are measured round by round, until every rule is decided.

Every round brings the cells of all open rules to the next planned number of images, of both models, and then all rules
are looked at (`holdfast.gate.looks`). What was measured stays, so an interrupted gate goes on where it stopped.
"""

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.gate.looks import Looks
from holdfast.gate.paired_scores import PairedScores, make_paired_scores
from holdfast.gate.rules import Rules
from holdfast.gate.scores import cells_of, tested_rules
from holdfast.gate.verdicts import RuleVerdict, decide
from holdfast.metrics.multiple_tests import NOT_RESOLVED
from holdfast.records.records import read_records

if TYPE_CHECKING:
    from holdfast.evaluation.anytime import AnytimeRun
    from holdfast.evaluation.setup import EvaluationRequest

NO_BUDGET = 10**15  # passes
Cells = tuple[str, ...]


@dataclass
class Side:
    """One of the two models in a gate that stops early.

    Attributes:
        run: its evaluation.
    """

    run: "AnytimeRun"
    _goals: list[tuple[int, ...]] = field(default_factory=list)
    _rounds: Generator[int, None, None] | None = None

    def reached(self, rules: Sequence[Cells]) -> int:
        """Number of rounds that are complete in the cells of all these rules."""
        run = self.run
        return min(run.search.rounds.reached(cells, run.done) for cells in map(self._numbers, rules))

    def begun(self, rules: Sequence[Cells]) -> bool:
        """Whether a part of the next round is measured, as after an interruption."""
        run = self.run
        return any(run.search.rounds.begun(cells, run.done) for cells in map(self._numbers, rules))

    def advance(self, rules: Sequence[Cells], target: int) -> None:
        """Measure until so many rounds are complete in the cells of all these rules, or the budget is used."""
        goals = list(map(self._numbers, rules))
        while not self.run.over and self.reached(rules) < target:
            if self._rounds is None or goals != self._goals:
                self.close()
                self._goals, self._rounds = goals, self.run.rounds(goals)
            if next(self._rounds, None) is None:
                return

    def scores(self) -> PairedScores:
        """What is measured so far."""
        work = self.run.prepared.work
        cells = [cell.name for cell in work.plan.cells]
        records = read_records(work.folder, cells=cells, rounds=self.run.measured)
        known = [name for name in cells if name in records.cells and len(records.cells[name])]
        return make_paired_scores(records.only(known))

    def show(self, answers: Sequence[RuleVerdict] = ()) -> None:
        """Show what the rules say so far, and the passes of all images."""
        open_rules = [answer for answer in answers if answer.verdict == NOT_RESOLVED]
        figures = [f"{answer.rule.text}: {answer.interval.value:+.2f}" for answer in open_rules]
        total = self.run.done[self.run.cells].size
        self.run.progress.show_estimates(figures, expected=total, passes=self.run.passes, total=total)

    def close(self) -> None:
        """End the workers."""
        if self._rounds is not None:
            self._rounds.close()
            self._rounds = None

    def _numbers(self, cells: Cells) -> tuple[int, ...]:
        plan = self.run.prepared.work.plan
        return tuple(number for number, cell in enumerate(plan.cells) if cell.name in cells)


def decide_in_rounds(
    new: Sequence["EvaluationRequest"],
    old: Sequence[PairedScores],
    rules: Rules,
    *,
    old_requests: Sequence["EvaluationRequest | None"] | None = None,
    budget: int | str | None = None,
    show: bool | None = None,
) -> tuple[list[RuleVerdict], list[PairedScores]]:
    """Measure until every rule is decided on every data set; returns verdicts and paired scores of the new model.

    Args:
        new: the evaluation of the new model on each data set of the baseline.
        old: the baseline.
        rules: rules, which share the error.
        old_requests: evaluation of the old model on each data set; None for one that cannot be measured any more.
        budget: as in `holdfast.Until`, for each model and data set.
        show: whether to show progress.
    """
    tested = [tested_rules(each, rules) for each in old]
    count = max(1, sum(map(len, tested)))
    partners = old_requests or [None] * len(old)
    answers: list[RuleVerdict] = []
    measured: list[PairedScores] = []
    for request, before, partner, asked in zip(new, old, partners, tested, strict=True):
        cells = {rule.text: cells_of(formula, before.cells) for rule, formula in asked}
        with ExitStack() as stack:
            both = [request, *([partner] if partner is not None and before.rows else [])]
            shown = (show, False)  # one line of progress
            sides = [
                _open(each, cells, budget, stack, among=before.cells, show=seen)
                for each, seen in zip(both, shown, strict=False)
            ]
            found = _until_decided(sides, before, cells.values(), rules, count=count)
            answers += found
            measured.append(sides[0].scores())
    return answers, measured


def _open(
    request: "EvaluationRequest",
    cells: Mapping[str, Cells],
    budget: int | str | None,
    stack: ExitStack,
    *,
    among: Collection[str],
    show: bool | None,
) -> Side:
    from holdfast.evaluation.evaluate import open_rounds
    from holdfast.evaluation.until import Until

    limit = Until(budget=NO_BUDGET if budget is None else budget)
    side = Side(stack.enter_context(open_rounds(request, cells, limit, among=among, show=show)))
    stack.enter_context(closing(side))
    return side


def looks_of(side: Side, *, rules: int) -> Looks:
    """The planned looks at the data of an evaluation."""
    plan, rounds = side.run.prepared.work.plan, side.run.search.rounds
    cells = tuple(plan.cells[number].name for number in rounds.cells)
    return Looks(len(plan.ids), cells, tuple(rounds.depths), rules)


def _until_decided(
    sides: Sequence[Side], before: PairedScores, cells: Iterable[Cells], rules: Rules, *, count: int
) -> list[RuleVerdict]:
    """Measure round after round of the open rules' cells, and look after each."""
    looks, still_open = looks_of(sides[0], rules=count), list(cells)
    answers, passes = None, -1
    sides[0].show()
    while still_open:
        level = min(side.reached(still_open) for side in sides)
        if answers is None and level and not any(side.begun(still_open) for side in sides):
            level -= 1  # look at what was measured earlier
        for side in sides:
            side.advance(still_open, level + 1)
        if min(side.reached(still_open) for side in sides) == 0:
            raise HoldfastError("budget must be enough for the first round of images; give a larger one to go on")
        now = sides[1].scores() if len(sides) > 1 else before
        answers = decide([sides[0].scores()], [now], rules, looks=[looks])
        sides[0].show(answers)
        used, passes = passes, sum(side.run.passes for side in sides)
        if used == passes or any(side.run.over for side in sides) or _exhausted(sides, now, still_open):
            break
        still_open = [answer.cells for answer in answers if answer.verdict == NOT_RESOLVED]
    assert answers is not None
    return answers


def _exhausted(sides: Sequence[Side], old: PairedScores, cells: Sequence[Cells]) -> bool:
    """Whether the baseline has no further images to compare with, and cannot be measured."""
    if len(sides) > 1 or not old.rows:
        return False
    depths = sides[0].run.search.rounds.depths
    there = min(len(old.rows[cell]) for each in cells for cell in each)
    return depths[sides[0].reached(cells) - 1] >= there
