"""The answers: better, no worse, worse, or not resolved, by the interval of the difference on the same images.

With a margin m and the 95 % interval of the gain (how much better the new model is), *no worse* means that the whole
interval lies above −m, *worse* that it lies below, *better* that it lies above 0; all else these images cannot tell.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isnan

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.gate.compatibility import Pair, match_sides
from holdfast.gate.paired_scores import PairedScores
from holdfast.gate.rules import SHOWN, Rule, Rules
from holdfast.gate.scores import Scores, asked_score, headline, unknown
from holdfast.metrics.carry_over import ON_C, ON_C_BAR, CarryOver, carry_over
from holdfast.metrics.intervals import Interval
from holdfast.metrics.jackknife import Groups, image_groups
from holdfast.metrics.score_intervals import Replicated, interval_of_difference, interval_of_score, is_same_model
from holdfast.metrics.scoring.base import ScoreDefinition
from holdfast.metrics.summary import some

BETTER, NO_WORSE, WORSE, NOT_RESOLVED = "better", "no worse", "worse", "not resolved"
MET, MISSED = "met", "missed"
NAMES = ("the new model", "the baseline")
RATIOS = ("retention", "rpc", "rpc_fan")  # how the names of what is divided by the clean score end


@dataclass(frozen=True)
class RuleVerdict:
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
        unreadable: the images that the new model's evaluation could not read; they count on neither side.
        unreadable_before: those of the baseline's, likewise.
        carry_over: whether the new model's gain on C carries over to C-bar, where both were measured on these data.
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
    unreadable: tuple[str, ...] = ()
    unreadable_before: tuple[str, ...] = ()
    carry_over: CarryOver | None = None


def decide(new: Sequence[PairedScores], old: Sequence[PairedScores], rules: Rules) -> list[RuleVerdict]:
    """Every rule on every data set of the baseline that has its score; a rule without an answer is refused."""
    if not old:
        raise HoldfastError("a baseline must hold a data set, got none; save it again")
    pairs = match_sides(new, old)
    for pair in pairs:
        _check_unreadable(pair, allowed=rules.allow_unreadable)
    answers = [answer for pair in pairs for answer in _of_pair(pair, rules)]
    across = {pair.old.data: _across(pair, pairs) for pair in pairs} if len(pairs) > 1 else {}
    answers = [replace(answer, carry_over=answer.carry_over or across.get(answer.data)) for answer in answers]
    asked = {answer.rule for answer in answers}
    for rule in rules.rules:
        if rule not in asked:
            raise HoldfastError(unknown(rule, pairs))
    if not answers:
        raise HoldfastError("the baseline must hold a headline score to judge by, but it has none; give --rules")
    return answers


def all_passed(answers: Sequence[RuleVerdict]) -> bool:
    """Whether all rules let the model through."""
    return all(answer.passed for answer in answers)


def _check_unreadable(pair: Pair, *, allowed: int) -> None:
    """An image that only the new model's evaluation could not read is left out of both, so it would hide an error."""
    before, now = pair.old.unreadable, pair.new.unreadable
    more = len(now) - len(before)
    if more > allowed:
        others = [name for name in now if name not in before]
        raise HoldfastError(
            f"the new model must be measured on the images of the baseline ({pair.old.data!r}), but {some(others)} "
            f"cannot be read: {len(now)} unreadable images, more than the {len(before)} of the baseline; "
            f"mend them, or allow for them: --allow-unreadable {more}"
        )


def _of_pair(pair: Pair, rules: Rules) -> list[RuleVerdict]:
    found = _asked(pair, rules)
    if not found:
        return []
    groups = image_groups(pair.ids, pair.targets)
    sides = [Replicated(columns, groups) for columns in pair.columns]
    for side, of_sets in zip(sides, pair.replicates, strict=True):
        side.replicates.update(of_sets)
    answers = [_decide_rule(rule, formula, pair, sides, groups, rules) for rule, formula in found]
    carried = carry_over(_formulas(pair), sides, groups, names=NAMES)
    return [replace(answer, carry_over=carried) if _is_gain(carried) else answer for answer in answers]


def _across(bar: Pair, pairs: Sequence[Pair]) -> CarryOver | None:
    """Whether a gain on C carries over to these data, if they are C-bar and another pair has C of the same images."""
    if ON_C_BAR not in _formulas(bar):
        return None
    for c in (pair for pair in pairs if pair is not bar and np.array_equal(pair.ids, bar.ids)):
        formulas = {**_formulas(bar), **{name: f for name, f in _formulas(c).items() if name == ON_C}}
        if ON_C in formulas and c.old.header.get("label") == bar.old.header.get("label"):
            groups = image_groups(c.ids, c.targets)
            columns = [{**one, **other} for one, other in zip(c.columns, bar.columns, strict=True)]
            carried = carry_over(formulas, [Replicated(each, groups) for each in columns], groups, names=NAMES)
            return carried if _is_gain(carried) else None
    return None


def _formulas(pair: Pair) -> Mapping[str, ScoreDefinition]:
    return Scores.of(pair.old, pair.cells, list(pair.columns[0])).formulas


def _is_gain(carried: CarryOver | None) -> bool:
    """Whether it is the new model that is better on C."""
    return carried is not None and carried.better == NAMES[0]


def _asked(pair: Pair, rules: Rules) -> list[tuple[Rule, ScoreDefinition]]:
    """The rules with the scores that they mean; without rules every headline score of the baseline, no worse."""
    if rules.rules:
        scores = [(rule, asked_score(rule, pair)) for rule in rules.rules]
        return [(rule, formula) for rule, formula in scores if formula is not None]
    return [(_default_rule(formula.name), formula) for formula in headline(pair)]


def _default_rule(name: str) -> Rule:
    """A ratio falls where what it is divided by rises more, which is no loss: it is shown, and not judged."""
    if name.removesuffix("_partial").endswith(RATIOS):
        return Rule(name, name, SHOWN)
    return Rule(f"{name} no worse", name, NO_WORSE)


def _decide_rule(
    rule: Rule, formula: ScoreDefinition, pair: Pair, sides: Sequence[Replicated], groups: Groups, rules: Rules
) -> RuleVerdict:
    new, old = (float(formula.compute(side.means)) for side in sides)
    answer = partial(
        RuleVerdict,
        rule,
        pair.old.data,
        len(pair.ids),
        formula.label,
        formula.unit,
        unreadable=pair.new.unreadable,
        unreadable_before=pair.old.unreadable,
    )
    if not rule.compares:
        assert rule.number is not None
        met = new >= rule.number if rule.what == ">=" else new <= rule.number
        bounds = interval_of_score(formula, new, sides[0].means, sides[0].replicates, groups=groups)
        return answer(float("nan"), new, bounds, MET if met else MISSED, met)
    same = is_same_model(pair.new.header, pair.old.header)
    interval = interval_of_difference(formula, (new, old), sides, groups=groups, same_model=same)
    if rule.what == SHOWN:
        return answer(old, new, interval, SHOWN, True)
    gain = interval if formula.better == "high" else Interval(-interval.value, -interval.high, -interval.low, 0.95)
    margin = _margin(rule, formula, rules)
    verdict, reason = _verdict(gain, rule, margin, images=len(pair.ids), enough=rules.images)
    return answer(old, new, interval, verdict, _lets_through(verdict, gain, rule, margin, rules), reason)


def _margin(rule: Rule, formula: ScoreDefinition, rules: Rules) -> float:
    if rule.number is not None:
        return rule.number
    return rules.margin if rule.what == NO_WORSE and formula.unit.startswith("%") else 0.0


def _verdict(gain: Interval, rule: Rule, margin: float, *, images: int, enough: int) -> tuple[str, str]:
    if isnan(gain.value):
        return NOT_RESOLVED, "the score of one of the models is undefined"
    if images < enough:
        wholly = "; the whole interval lies below what is asked" if _surely_missed(gain, rule, margin) else ""
        return NOT_RESOLVED, f"too few images: {images}, at least {enough} are needed{wholly}"
    if isnan(gain.low):  # AP belongs to a whole set
        asked = verdict_of(_bare(gain), margin=margin, asked=rule.what)
        return asked, "this score has no interval: judged by the value alone"
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
    wanted = margin if rule.what == BETTER else 0 - margin  # not −0
    distance, half = abs(gain.value - wanted), (gain.high - gain.low) / 2
    times = (half / distance) ** 2 if distance else float("inf")
    more = f"about {np.ceil(10 * times) / 10:g} times as many images" if times < 1000 else "far more images"
    return f"the interval reaches beyond {wanted:+g}; {more} or a wider margin would tell"


def _lets_through(verdict: str, gain: Interval, rule: Rule, margin: float, rules: Rules) -> bool:
    if verdict == NOT_RESOLVED:
        can_be_asked = not isnan(gain.value) and not _surely_missed(gain, rule, margin)
        return rules.unresolved == "pass" and can_be_asked
    return verdict == BETTER or (verdict == NO_WORSE and rule.what == NO_WORSE)


def _surely_missed(gain: Interval, rule: Rule, margin: float) -> bool:
    """Whether the whole interval lies below what is asked, however few images it is of."""
    known = _bare(gain) if isnan(gain.low) else gain
    verdict = verdict_of(known, margin=margin, asked=rule.what)
    return verdict == WORSE or (verdict == NO_WORSE and rule.what == BETTER)


def _bare(gain: Interval) -> Interval:
    return Interval(gain.value, gain.value, gain.value, gain.level)
