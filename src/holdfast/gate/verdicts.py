"""The answers: better, no worse, worse, or not resolved, by the interval of the difference on the same images.

With a margin m and the 95 % interval of the gain (how much better the new model is), *no worse* means that the whole
interval lies above −m, *worse* that it lies below, *better* that it lies above 0; all else these images cannot tell.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import isnan

import numpy as np

from holdfast.errors import HoldfastError, nearest
from holdfast.gate.matching import Pair, matched
from holdfast.gate.rules import Rule, Rules
from holdfast.gate.sides import Side
from holdfast.metrics.formulas import Formula
from holdfast.metrics.intervals import Interval
from holdfast.metrics.jackknife import Groups, image_groups
from holdfast.metrics.score_intervals import Replicated, interval_of_difference, interval_of_score, is_same_model
from holdfast.metrics.summary import some
from holdfast.tasks import task_named

BETTER, NO_WORSE, WORSE, NOT_RESOLVED = "better", "no worse", "worse", "not resolved"
MET, MISSED = "met", "missed"


@dataclass(frozen=True)
class Judged:
    """One rule's answer on one data set.

    Attributes:
        rule: what was asked.
        data: on which data.
        images: on how many images.
        label: what the score is called.
        unit: ``%`` …
        old: the baseline's value; NaN for a bound that asks no baseline.
        new: the new model's.
        interval: of new minus old, or of the new value for a bound.
        verdict: one of the words above.
        passed: whether the gate lets it through.
        reason: what to know about the verdict, in a sentence; mostly empty.
    """

    rule: Rule
    data: str
    images: int
    label: str
    unit: str
    old: float
    new: float
    interval: Interval
    verdict: str
    passed: bool
    reason: str = ""


def judge(new: Sequence[Side], old: Sequence[Side], rules: Rules) -> list[Judged]:
    """Every rule on every data set of the baseline that has its score."""
    pairs = matched(new, old)
    answers = [answer for pair in pairs for answer in _of_pair(pair, rules)]
    asked = {answer.rule for answer in answers}
    for rule in rules.rules:
        if rule not in asked:
            raise HoldfastError(_unknown(rule, pairs))
    if not answers:
        raise HoldfastError("the baseline must hold a headline score to judge by, but it has none; give --rules")
    return answers


def passed(answers: Sequence[Judged]) -> bool:
    """Whether all rules let the model through."""
    return all(answer.passed for answer in answers)


def _of_pair(pair: Pair, rules: Rules) -> list[Judged]:
    formulas = _by_name(pair)
    asked = list(rules.rules) or _headline(pair, formulas)
    found = [(rule, formula) for rule in asked if (formula := _formula(rule.name, pair, formulas)) is not None]
    if not found:
        return []
    groups = image_groups(pair.ids, pair.targets)
    sides = [Replicated(columns, groups) for columns in pair.columns]
    for side, of_sets in zip(sides, pair.replicates, strict=True):
        side.replicates.update(of_sets)
    return [_judged(rule, formula, pair, sides, groups, rules) for rule, formula in found]


def _by_name(pair: Pair) -> dict[str, Formula]:
    columns = list(pair.columns[0])
    return {
        formula.name: formula for formula in pair.old.formulas(pair.cells, columns) if _computable(formula, columns)
    }


def _computable(formula: Formula, columns: Sequence[str]) -> bool:
    """Whether a baseline file kept what the score is made of."""
    try:
        formula.compute(dict.fromkeys(columns, 0.5))
    except KeyError:
        return False
    return True


def _headline(pair: Pair, there: dict[str, Formula]) -> list[Rule]:
    """Every headline score of the baseline, no worse."""
    task, old = task_named(pair.old.task), pair.old
    names = []
    for formula in old.formulas(list(old.cells), list(old.columns)):
        asked = formula.headline or formula.name.removesuffix("_partial") in task.headline
        if not asked and formula.family not in ("set", "attack"):
            continue
        if formula.name not in there:
            lacking = [cell for cell in old.cells if cell not in pair.cells]
            raise HoldfastError(
                f"the new model must have all cells of the baseline ({old.data!r}), but {some(lacking)} "
                f"{_why(lacking, pair)}; evaluate the same suites, or ask for less by --rules"
            )
        names.append(formula.name)
    return [Rule(f"{name} no worse", name, NO_WORSE) for name in names]


def _why(cells: Sequence[str], pair: Pair) -> str:
    return "was measured by another definition" if set(cells) & set(pair.unlike) else "is missing"


def _formula(name: str, pair: Pair, formulas: dict[str, Formula]) -> Formula | None:
    """The score of that name or label, the corruption mean as ``C``, a cell such as ``fog/5``, or a kind."""
    if name in formulas:
        return formulas[name]
    by_label = {formula.label: formula for formula in reversed(formulas.values()) if not formula.table}
    if name in by_label:
        return by_label[name]
    if name == "C":
        return next((held for key, held in formulas.items() if key.startswith(("mean_corruption_", "mpc"))), None)
    if name in pair.cells:
        alone = pair.old.formulas([name], list(pair.columns[0]))
        return next((formula for formula in alone if formula.cells == (name,)), None)
    return next((formula for formula in formulas.values() if formula.table and formula.kind == name), None)


def _unknown(rule: Rule, pairs: Sequence[Pair]) -> str:
    known = {name for pair in pairs for name in (*_by_name(pair), *pair.cells)}
    unlike = [cell for pair in pairs for cell in pair.unlike]
    lacking = [cell for pair in pairs for cell in pair.old.cells if cell not in pair.new.cells]
    measured = {f.name for pair in pairs for f in pair.new.formulas(list(pair.new.cells), list(pair.new.columns))}
    if f"{rule.name}_partial" in known:
        because = f"; of its cells some are missing, it is there as '{rule.name}_partial'"
    elif unlike:
        because = f"; {some(unlike)} was measured by another definition than the baseline's"
    elif lacking:
        because = f"; the new model lacks {some(lacking)}"
    elif rule.name in measured and any(pair.old.left_out for pair in pairs):
        because = "; a baseline file does not keep it: gate against the records themselves"
    else:
        because = nearest(rule.name, known)
    return f"rule {rule.text!r} must name a score, a cell or a kind that both models have, got {rule.name!r}{because}"


def _judged(
    rule: Rule, formula: Formula, pair: Pair, sides: Sequence[Replicated], groups: Groups, rules: Rules
) -> Judged:
    new, old = (float(formula.compute(side.means)) for side in sides)
    answer = partial(Judged, rule, pair.old.data, len(pair.ids), formula.label, formula.unit)
    if not rule.compares:
        assert rule.number is not None
        met = new >= rule.number if rule.what == ">=" else new <= rule.number
        bounds = interval_of_score(formula, new, sides[0].means, sides[0].replicates, groups=groups)
        return answer(float("nan"), new, bounds, MET if met else MISSED, met)
    same = is_same_model(pair.new.header, pair.old.header)
    interval = interval_of_difference(formula, (new, old), sides, groups=groups, same_model=same)
    gain = interval if formula.better == "high" else Interval(-interval.value, -interval.high, -interval.low, 0.95)
    verdict, reason = _verdict(gain, rule, _margin(rule, formula, rules), images=len(pair.ids), enough=rules.images)
    return answer(old, new, interval, verdict, _lets_through(verdict, rule, rules), reason)


def _margin(rule: Rule, formula: Formula, rules: Rules) -> float:
    if rule.number is not None:
        return rule.number
    return rules.margin if rule.what == NO_WORSE and formula.unit.startswith("%") else 0.0


def _verdict(gain: Interval, rule: Rule, margin: float, *, images: int, enough: int) -> tuple[str, str]:
    if isnan(gain.value):
        return NOT_RESOLVED, "the score of one of the models is undefined"
    if images < enough:
        return NOT_RESOLVED, f"too few images: {images}, at least {enough} are needed"
    if isnan(gain.low):  # AP belongs to a whole set
        bare = Interval(gain.value, gain.value, gain.value, gain.level)
        return verdict_of(bare, margin=margin, asked=rule.what), "this score has no interval: judged by the value alone"
    verdict = verdict_of(gain, margin=margin, asked=rule.what)
    return verdict, _how_to_resolve(gain, rule, margin) if verdict == NOT_RESOLVED else ""


def verdict_of(gain: Interval, *, margin: float, asked: str = NO_WORSE) -> str:
    """The word for how much better the new model is; ``asked`` is ``no worse`` (by the margin) or ``better``."""
    if asked == BETTER:
        if gain.low > margin:
            return BETTER
        return WORSE if gain.high < 0 else NO_WORSE if gain.high <= margin else NOT_RESOLVED
    if gain.low > 0:
        return BETTER
    return NO_WORSE if gain.low >= -margin else WORSE if gain.high < -margin else NOT_RESOLVED


def _how_to_resolve(gain: Interval, rule: Rule, margin: float) -> str:
    """An interval shrinks with the root of the number of images."""
    wanted = margin if rule.what == BETTER else -margin
    distance, half = abs(gain.value - wanted), (gain.high - gain.low) / 2
    times = (half / distance) ** 2 if distance else float("inf")
    more = f"about {np.ceil(10 * times) / 10:g} times as many images" if times < 1000 else "far more images"
    return f"the interval reaches beyond {wanted:+g}; {more} or a wider margin would tell"


def _lets_through(verdict: str, rule: Rule, rules: Rules) -> bool:
    if verdict == NOT_RESOLVED:
        return rules.unresolved == "pass"
    return verdict == BETTER or (verdict == NO_WORSE and rule.what == NO_WORSE)
