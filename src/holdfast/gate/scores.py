"""Scores of rules: finds the score that a rule names on one data set, or raises an error that says what is missing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.errors import HoldfastError, nearest
from holdfast.gate.compatibility import Pair
from holdfast.gate.paired_scores import PairedScores
from holdfast.gate.rules import SHOWN, Rule, Rules
from holdfast.metrics.multiple_tests import NO_WORSE
from holdfast.metrics.scoring.base import Key, ScoreDefinition
from holdfast.metrics.scoring.registry import scoring_of
from holdfast.metrics.summary import some

PARTIAL = "_partial"


@dataclass(frozen=True)
class Scores:
    """Every score that some cells of one model allow.

    Attributes:
        side: paired scores of the model.
        cells: names of the cells.
        columns: cells and quantities that are available.
        formulas: score definitions by name.
    """

    side: PairedScores
    cells: tuple[str, ...]
    columns: tuple[Key, ...]
    formulas: Mapping[str, ScoreDefinition]

    @classmethod
    def of(
        cls, side: PairedScores, cells: Sequence[str] | None = None, columns: Sequence[Key] | None = None
    ) -> "Scores":
        """Scores of a model, or of some of its cells."""
        names = tuple(side.cells if cells is None else cells)
        kept = tuple(side.quantities if columns is None else columns)
        found = {formula.name: formula for formula in side.formulas(names, kept)}
        # a baseline file does not store everything, so a score must say what it reads
        known = set(kept)
        there = [
            name
            for name, each in found.items()
            if known.issuperset(each.reads) and (each.reads or side.ids is not None)
        ]
        return cls(side, names, kept, {name: found[name] for name in there})

    def find(self, name: str) -> ScoreDefinition | None:
        """Find a score by name or label, the means as ``C`` and ``C-bar``, a cell such as ``fog/5``, or a kind."""
        if name in self.formulas:
            return self.formulas[name]
        whole = [formula for formula in self.formulas.values() if not formula.name.endswith(PARTIAL)]
        return _find_by_label(name, whole) or self._cell(name) or _of_kind(name, whole)

    def part_of(self, name: str) -> ScoreDefinition | None:
        """The partial version of the score ``name``."""
        parts = [formula for formula in self.formulas.values() if formula.name.endswith(PARTIAL)]
        exact = next((formula for formula in parts if formula.name == f"{name}{PARTIAL}"), None)
        return exact or _find_by_label(name, parts) or _of_kind(name, parts)

    def read_by(self, formula: ScoreDefinition) -> set[Key]:
        """What a score reads; if it does not say so, everything in its cells."""
        return set(formula.reads) or {key for key in self.columns if not formula.cells or key[0] in formula.cells}

    def _cell(self, name: str) -> ScoreDefinition | None:
        if name not in self.cells:
            return None
        alone = self.side.formulas([name], self.columns)
        return next((formula for formula in alone if formula.cells == (name,)), None)


def _find_by_label(name: str, formulas: Sequence[ScoreDefinition]) -> ScoreDefinition | None:
    if name == "C-bar":
        return next((f for f in formulas if f.name.startswith("mean_c_bar_")), None)
    if name == "C":
        means = [f for f in formulas if f.name.startswith("mean_corruption_") or f.name.removesuffix(PARTIAL) == "mpc"]
        return next(iter(means), None)
    alone = [formula for formula in formulas if not formula.table]
    return next((formula for formula in alone if formula.label.partition(" (partial")[0] == name), None)


def _of_kind(name: str, formulas: Sequence[ScoreDefinition]) -> ScoreDefinition | None:
    return next((formula for formula in formulas if formula.table and formula.kind == name), None)


def score_of_rule(rule: Rule, pair: Pair) -> ScoreDefinition | None:
    """The score that a rule names; None if neither model has it. Raises an error if it cannot be compared."""
    shared = Scores.of(pair.old, pair.cells, pair.quantities)
    old, new = Scores.of(pair.old), Scores.of(pair.new)
    formula, before = shared.find(rule.name), old.find(rule.name)
    if formula is not None and before is not None and shared.read_by(formula) == old.read_by(before):
        return formula
    if before is None and new.find(rule.name) is None and not _is_partial(rule.name, old, new):
        return None
    raise HoldfastError(
        f"rule {rule.text!r} must be testable on every data set that has its score, but on {pair.old.data!r} "
        f"{_why_missing(rule.name, pair, old, new)}"
    )


def _is_partial(name: str, *sides: Scores) -> bool:
    """Whether a score is only available in part, or one of its cells is incomplete."""
    unfinished = {
        part for scores in sides for cell in scores.side.unfinished for part in (cell, cell.partition("/")[0])
    }
    return name in unfinished or any(scores.part_of(name) is not None for scores in sides)


def _why_missing(name: str, pair: Pair, old: Scores, new: Scores) -> str:
    """The reason why a score cannot be compared, for the error message."""
    before, now = old.find(name), new.find(name)
    wanted = _cells(old, before) or _cells(new, now)
    unlike = [cell for cell in wanted if cell in pair.unlike]
    if unlike:
        have = "has" if len(unlike) == 1 else "have"
        return f"{some(unlike)} {have} another definition than in the baseline; evaluate again"
    if before is not None and (lacking := [cell for cell in wanted if cell not in pair.new.cells]):
        return f"the new model lacks {some(lacking)}; evaluate the same suites"
    if now is not None and (lacking := [cell for cell in wanted if cell not in pair.old.cells]):
        return f"the baseline lacks {some(lacking)}; evaluate it there, and save the baseline again"
    return _why_incomparable(name, pair, old, new)


def _why_incomparable(name: str, pair: Pair, old: Scores, new: Scores) -> str:
    """The reason if no cell of the score is missing."""
    if new.find(name) is not None and pair.old.left_out:
        return "a baseline file does not store it: use --against with the records themselves"
    parts = [part for scores in (new, old) if (part := scores.part_of(name)) is not None]
    if parts:
        missing = list(dict.fromkeys(cell for part in parts for cell in part.missing))
        return f"some of its cells are missing ({some(missing)}); to test the others, use {parts[-1].name!r}"
    unfinished = list(dict.fromkeys([*pair.new.unfinished, *pair.old.unfinished]))
    if unfinished:
        return f"{some(unfinished)} is incomplete; run the evaluation again to resume"
    return "the two models have different columns for it; evaluate again"


def _cells(scores: Scores, formula: ScoreDefinition | None) -> list[str]:
    """Cells that a score uses, in order."""
    if formula is None:
        return []
    used = {cell for cell, _ in scores.read_by(formula)} | set(formula.cells)
    return [cell for cell in scores.cells if cell in used]


def cells_of(formula: ScoreDefinition, cells: Iterable[str]) -> tuple[str, ...]:
    """Cells that a score is computed from; all of them if it does not say so."""
    return tuple(dict.fromkeys([cell for cell, _ in formula.reads] or formula.cells or cells))


def tested_rules(old: PairedScores, rules: Rules) -> list[tuple[Rule, ScoreDefinition]]:
    """Rules that will be tested on the baseline's data, with their scores, before the new model is measured."""
    scores = Scores.of(old)
    if rules.rules:
        named = [(rule, scores.find(rule.name)) for rule in rules.rules]
        return [(rule, formula) for rule, formula in named if formula is not None]
    known = [formula for name, formula in scores.formulas.items() if _is_headline(name, formula, old)]
    return [(rule, formula) for formula in known if (rule := default_rule(formula)).what != SHOWN]


def default_rule(formula: ScoreDefinition) -> Rule:
    """Default rule of a headline score; ratios are only shown, because they fall if the clean score rises."""
    if formula.scale == "ratio":
        return Rule(formula.name, formula.name, SHOWN)
    return Rule(f"{formula.name} no worse", formula.name, NO_WORSE)


def _is_headline(name: str, formula: ScoreDefinition, side: PairedScores) -> bool:
    known = formula.headline or name.removesuffix(PARTIAL) in scoring_of(side.task).headline
    return known or formula.family in ("set", "attack")


def check_rules(old: Sequence[PairedScores], rules: Rules) -> None:
    """Raise an error for a rule that no data set of the baseline can answer, before the new model is measured."""
    sides = [Scores.of(each) for each in old]
    for rule in rules.rules:
        if any(each.find(rule.name) is not None for each in sides):
            continue
        problem = f"rule {rule.text!r} must be testable, but "
        if any(Scores.of(each, columns=[*each.quantities, *each.left_out]).find(rule.name) for each in old):
            raise HoldfastError(f"{problem}a baseline file does not store it: give --against the records themselves")
        if _is_partial(rule.name, *sides):
            raise HoldfastError(f"{problem}the baseline lacks cells of it; evaluate them, and save the baseline again")
        raise HoldfastError(unknown_score_message(rule, old))


def unknown_score_message(rule: Rule, old: Sequence[PairedScores]) -> str:
    """Error message for a rule whose score no data set has."""
    known = {name for each in old for name in (*Scores.of(each).formulas, *each.cells)}
    message = f"rule {rule.text!r} must name a score, a cell or a kind that both models have, got {rule.name!r}"
    return message + nearest(rule.name, known)


def headline(pair: Pair) -> list[ScoreDefinition]:
    """Headline scores of the baseline; raises an error if the new model lacks a cell of one."""
    old = Scores.of(pair.old)
    shared = Scores.of(pair.old, pair.cells, pair.quantities)
    found = []
    for name, formula in old.formulas.items():
        if not _is_headline(name, formula, pair.old):
            continue
        if name not in shared.formulas or shared.read_by(shared.formulas[name]) != old.read_by(formula):
            lacking = [cell for cell in pair.old.cells if cell not in pair.cells]
            one = len(lacking) == 1
            why = "is missing" if one else "are missing"
            if set(lacking) & set(pair.unlike):
                why = f"{'has' if one else 'have'} another definition"
            raise HoldfastError(
                f"the new model must have all cells of the baseline ({pair.old.data!r}), but {some(lacking)} {why}; "
                "evaluate the same suites, or test fewer scores with --rules"
            )
        found.append(shared.formulas[name])
    return found


def missing_headlines(side: PairedScores) -> dict[str, tuple[str, ...]]:
    """Headline scores that are only available in part, with their missing cells."""
    scoring = scoring_of(side.task)
    return {
        name.removesuffix(PARTIAL): formula.missing
        for name, formula in Scores.of(side).formulas.items()
        if name.endswith(PARTIAL) and name.removesuffix(PARTIAL) in scoring.headline
    }
