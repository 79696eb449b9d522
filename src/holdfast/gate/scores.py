"""Which score a rule means on one data set: the full one of both models, or a refusal that says what is missing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.errors import HoldfastError, nearest
from holdfast.gate.compatibility import Pair
from holdfast.gate.paired_scores import PairedScores
from holdfast.gate.rules import Rule
from holdfast.metrics.scoring.base import ScoreDefinition
from holdfast.metrics.summary import some
from holdfast.tasks import task_named

PARTIAL = "_partial"


class _Read(dict[str, float]):
    """Means that note which of them a formula asks for."""

    def __init__(self, columns: Sequence[str]) -> None:
        super().__init__(dict.fromkeys(columns, 0.5))
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> float:
        self.asked.add(name)
        return super().__getitem__(name)


@dataclass(frozen=True)
class Scores:
    """Every score that some cells of one side allow.

    Attributes:
        side: whose.
        cells: of which cells.
        columns: what of them is kept.
        formulas: the scores by name.
    """

    side: PairedScores
    cells: tuple[str, ...]
    columns: tuple[str, ...]
    formulas: Mapping[str, ScoreDefinition]

    @classmethod
    def of(
        cls, side: PairedScores, cells: Sequence[str] | None = None, columns: Sequence[str] | None = None
    ) -> "Scores":
        """The scores of a side, or of a part of its cells."""
        names = tuple(side.cells if cells is None else cells)
        kept = tuple(side.columns if columns is None else columns)
        found = [formula for formula in side.formulas(names, kept) if reads(formula, kept) is not None]
        return cls(side, names, kept, {formula.name: formula for formula in found})

    def named(self, name: str) -> ScoreDefinition | None:
        """The score of that name or label, the means as ``C`` and ``C-bar``, a cell such as ``fog/5``, or a kind."""
        if name in self.formulas:
            return self.formulas[name]
        whole = [formula for formula in self.formulas.values() if not formula.name.endswith(PARTIAL)]
        return _called(name, whole) or self._cell(name) or _of_kind(name, whole)

    def part_of(self, name: str) -> ScoreDefinition | None:
        """The partial score of which ``name`` is the full one."""
        parts = [formula for formula in self.formulas.values() if formula.name.endswith(PARTIAL)]
        exact = next((formula for formula in parts if formula.name == f"{name}{PARTIAL}"), None)
        return exact or _called(name, parts) or _of_kind(name, parts)

    def read_by(self, formula: ScoreDefinition) -> set[str]:
        """The columns that a score is made of."""
        return reads(formula, self.columns) or set()

    def _cell(self, name: str) -> ScoreDefinition | None:
        if name not in self.cells:
            return None
        alone = self.side.formulas([name], self.columns)
        return next((formula for formula in alone if formula.cells == (name,)), None)


def _called(name: str, formulas: Sequence[ScoreDefinition]) -> ScoreDefinition | None:
    if name == "C-bar":
        return next((f for f in formulas if f.name.startswith("mean_c_bar_")), None)
    if name == "C":
        means = [f for f in formulas if f.name.startswith("mean_corruption_") or f.name.removesuffix(PARTIAL) == "mpc"]
        return next(iter(means), None)
    alone = [formula for formula in formulas if not formula.table]
    return next((formula for formula in alone if formula.label.partition(" (partial")[0] == name), None)


def _of_kind(name: str, formulas: Sequence[ScoreDefinition]) -> ScoreDefinition | None:
    return next((formula for formula in formulas if formula.table and formula.kind == name), None)


def reads(formula: ScoreDefinition, columns: Sequence[str]) -> set[str] | None:
    """The columns that a score is made of; None where one of them is missing: a baseline file does not keep all."""
    means = _Read(columns)
    try:
        formula.compute(means)
    except KeyError:
        return None
    return means.asked


def asked_score(rule: Rule, pair: Pair) -> ScoreDefinition | None:
    """The score that a rule means; None on data where neither model has it. Refuses what cannot be compared."""
    shared = Scores.of(pair.old, pair.cells, list(pair.columns[0]))
    old, new = Scores.of(pair.old), Scores.of(pair.new)
    formula, before = shared.named(rule.name), old.named(rule.name)
    if formula is not None and before is not None and shared.read_by(formula) == old.read_by(before):
        return formula
    if before is None and new.named(rule.name) is None and not _begun(rule.name, old, new):
        return None
    raise HoldfastError(
        f"rule {rule.text!r} must be answered on every data set that has its score, but on {pair.old.data!r} "
        f"{_because(rule.name, pair, old, new)}"
    )


def _begun(name: str, *sides: Scores) -> bool:
    """Whether a score is there in part, or one of its cells is only partly measured."""
    unfinished = {
        part for scores in sides for cell in scores.side.unfinished for part in (cell, cell.partition("/")[0])
    }
    return name in unfinished or any(scores.part_of(name) is not None for scores in sides)


def _because(name: str, pair: Pair, old: Scores, new: Scores) -> str:
    """What is missing, and where."""
    before, now = old.named(name), new.named(name)
    wanted = _cells(old, before) or _cells(new, now)
    unlike = [cell for cell in wanted if cell in pair.unlike]
    if unlike:
        return f"{some(unlike)} was measured by another definition than the baseline's; evaluate again"
    if before is not None and (lacking := [cell for cell in wanted if cell not in pair.new.cells]):
        return f"the new model lacks {some(lacking)}; evaluate the same suites"
    if now is not None and (lacking := [cell for cell in wanted if cell not in pair.old.cells]):
        return f"the baseline lacks {some(lacking)}; measure it there, and save it again"
    return _kept_otherwise(name, pair, old, new)


def _kept_otherwise(name: str, pair: Pair, old: Scores, new: Scores) -> str:
    """What is missing where no cell of the full score is."""
    if new.named(name) is not None and pair.old.left_out:
        return "a baseline file does not keep it: gate against the records themselves"
    parts = [part for scores in (new, old) if (part := scores.part_of(name)) is not None]
    if parts:
        missing = list(dict.fromkeys(cell for part in parts for cell in part.missing))
        return f"some of its cells are missing ({some(missing)}); to judge by the others, ask {parts[-1].name!r}"
    unfinished = list(dict.fromkeys([*pair.new.unfinished, *pair.old.unfinished]))
    if unfinished:
        return f"{some(unfinished)} is only partly measured; evaluate again to go on"
    return "the two models do not keep the same of it; evaluate again"


def _cells(scores: Scores, formula: ScoreDefinition | None) -> list[str]:
    """The cells that a score is made of, in their order."""
    if formula is None:
        return []
    used = {name.partition("|")[0] for name in scores.read_by(formula)} | set(formula.cells)
    return [cell for cell in scores.cells if cell in used]


def unknown(rule: Rule, pairs: Sequence[Pair]) -> str:
    """What to say of a rule that no data set has an answer to."""
    known = {name for pair in pairs for name in (*Scores.of(pair.old).formulas, *pair.old.cells)}
    told = f"rule {rule.text!r} must name a score, a cell or a kind that both models have, got {rule.name!r}"
    return told + nearest(rule.name, known)


def headline(pair: Pair) -> list[ScoreDefinition]:
    """Every headline score of the baseline; refuses if the new model lacks a cell of one."""
    task, old = task_named(pair.old.task), Scores.of(pair.old)
    shared = Scores.of(pair.old, pair.cells, list(pair.columns[0]))
    found = []
    for name, formula in old.formulas.items():
        known = formula.headline or name.removesuffix(PARTIAL) in task.headline
        if not known and formula.family not in ("set", "attack"):
            continue
        if name not in shared.formulas or shared.read_by(shared.formulas[name]) != old.read_by(formula):
            lacking = [cell for cell in pair.old.cells if cell not in pair.cells]
            why = "was measured by another definition" if set(lacking) & set(pair.unlike) else "is missing"
            raise HoldfastError(
                f"the new model must have all cells of the baseline ({pair.old.data!r}), but {some(lacking)} {why}; "
                "evaluate the same suites, or ask for less by --rules"
            )
        found.append(shared.formulas[name])
    return found


def lacking(side: PairedScores) -> dict[str, tuple[str, ...]]:
    """The headline scores that a side has only in part, with the cells they lack."""
    task = task_named(side.task)
    return {
        name.removesuffix(PARTIAL): formula.missing
        for name, formula in Scores.of(side).formulas.items()
        if name.endswith(PARTIAL) and name.removesuffix(PARTIAL) in task.headline
    }
