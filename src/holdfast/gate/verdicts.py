"""Verdicts of a gate: better, no worse, worse, or not resolved, by the paired interval of the difference.

With a margin m and the 95 % interval of the gain (how much better the new model is), *no worse* means that the whole
interval lies above −m (a non-inferiority test), *worse* that it lies below −m, *better* that it lies above 0;
otherwise the difference is not resolved by these images. A gate that stops early looks after every round of images,
with wider intervals (`holdfast.gate.looks`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isnan

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.gate.compatibility import Pair, match_record_sets
from holdfast.gate.looks import Look, Looks, difference_at_look, score_at_look
from holdfast.gate.paired_scores import PairedScores
from holdfast.gate.rules import SHOWN, Rule, Rules
from holdfast.gate.scores import Scores, cells_of, default_rule, headline, score_of_rule, unknown_score_message
from holdfast.metrics.carry_over import ON_C, ON_C_BAR, CarryOver, carry_over
from holdfast.metrics.intervals import Interval
from holdfast.metrics.jackknife import image_groups
from holdfast.metrics.multiple_tests import BETTER, NO_WORSE, NOT_RESOLVED, WORSE
from holdfast.metrics.replicates import Replicates, replicate
from holdfast.metrics.score_intervals import interval_of_difference, interval_of_score, is_same_model
from holdfast.metrics.scoring.base import ScoreDefinition
from holdfast.metrics.summary import some
from holdfast.records.class_map import class_map_words

MET, MISSED = "met", "missed"
NAMES = ("the new model", "the baseline")


@dataclass(frozen=True)
class RuleVerdict:
    """Verdict of one rule on one data set.

    Attributes:
        rule: the rule.
        data: spec of the data set.
        images: number of images.
        label: label of the score.
        unit: unit of the score, such as ``%``.
        old: value of the baseline; NaN for a bound, which has none.
        new: value of the new model.
        interval: interval of new minus old, or of the new value for a bound.
        verdict: one of the words above.
        passed: whether the rule passed.
        reason: explanation of the verdict in a sentence; mostly empty.
        unreadable: images that the new model's evaluation could not read, excluded from both models.
        unreadable_before: images that the baseline's evaluation could not read, likewise.
        carry_over: whether the new model's gain on C carries over to C-bar, where both were measured on these data.
        cells: cells that the score is computed from.
        passes: of cells without some images, how many passes of the new model were used of how many; else empty.
        answers: how the outputs of the new model became answers, in words; empty if they are the data's classes.
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
    cells: tuple[str, ...] = ()
    passes: str = ""
    answers: str = ""


def decide(
    new: Sequence[PairedScores],
    old: Sequence[PairedScores],
    rules: Rules,
    *,
    looks: Sequence[Looks | None] | None = None,
) -> list[RuleVerdict]:
    """Decide every rule on every data set of the baseline that has its score; raises an error if none has.

    ``looks`` has the planned looks at every data set of a gate that stops early.
    """
    if not old:
        raise HoldfastError("a baseline must have a data set, got none; save it again")
    pairs = match_record_sets(new, old)
    for pair in pairs:
        _check_unreadable(pair, allowed=rules.allow_unreadable)
    planned = looks if looks is not None else [None] * len(pairs)
    answers = [answer for pair, look in zip(pairs, planned, strict=True) for answer in _decide_pair(pair, rules, look)]
    across = {pair.old.data: _across(pair, pairs) for pair in pairs} if len(pairs) > 1 else {}
    answers = [replace(answer, carry_over=answer.carry_over or across.get(answer.data)) for answer in answers]
    asked = {answer.rule for answer in answers}
    for rule in rules.rules:
        if rule not in asked:
            raise HoldfastError(unknown_score_message(rule, old))
    if not answers:
        raise HoldfastError("the baseline must have a headline score to test, but it has none; give --rules")
    return answers


def all_passed(answers: Sequence[RuleVerdict]) -> bool:
    """Whether all rules passed."""
    return all(answer.passed for answer in answers)


def _check_unreadable(pair: Pair, *, allowed: int) -> None:
    """Raise an error for newly unreadable images: they are excluded from both models, which could hide errors."""
    before, now = pair.old.unreadable, pair.new.unreadable
    more = len(now) - len(before)
    if more > allowed:
        others = [name for name in now if name not in before]
        raise HoldfastError(
            f"the new model must be evaluated on the images of the baseline ({pair.old.data!r}), but {some(others)} "
            f"cannot be read: {len(now)} unreadable images, more than the {len(before)} of the baseline; "
            f"repair them, or allow them with --allow-unreadable {more}"
        )


def _decide_pair(pair: Pair, rules: Rules, looks: Looks | None) -> list[RuleVerdict]:
    found = _rules_and_scores(pair, rules)
    if not found:
        return []
    groups = image_groups(pair.ids, pair.targets)
    models = [
        replicate(columns, groups, of_sets=of_sets, rows=pair.rows)
        for columns, of_sets in zip(pair.columns, pair.of_sets, strict=True)
    ]
    answers = [_decide_rule(rule, formula, pair, models, rules, looks) for rule, formula in found]
    carried = carry_over(_formulas(pair), models, names=NAMES)
    return [replace(answer, carry_over=carried) if _is_gain(carried) else answer for answer in answers]


def _across(bar: Pair, pairs: Sequence[Pair]) -> CarryOver | None:
    """Whether a gain on C carries over to these data, if they are C-bar and another pair has C of the same images."""
    if ON_C_BAR not in _formulas(bar):
        return None
    whole = (pair for pair in pairs if pair is not bar and not pair.rows and not bar.rows)
    for c in (pair for pair in whole if np.array_equal(pair.ids, bar.ids)):
        formulas = {**_formulas(bar), **{name: f for name, f in _formulas(c).items() if name == ON_C}}
        if ON_C in formulas and c.old.header.get("label") == bar.old.header.get("label"):
            groups = image_groups(c.ids, c.targets)
            columns = [{**one, **other} for one, other in zip(c.columns, bar.columns, strict=True)]
            carried = carry_over(formulas, [replicate(each, groups) for each in columns], names=NAMES)
            return carried if _is_gain(carried) else None
    return None


def _formulas(pair: Pair) -> Mapping[str, ScoreDefinition]:
    return Scores.of(pair.old, pair.cells, list(pair.columns[0])).formulas


def _is_gain(carried: CarryOver | None) -> bool:
    """Whether it is the new model that is better on C."""
    return carried is not None and carried.better == NAMES[0]


def _rules_and_scores(pair: Pair, rules: Rules) -> list[tuple[Rule, ScoreDefinition]]:
    """Rules with their scores; without rules, every headline score of the baseline must be no worse."""
    if rules.rules:
        scores = [(rule, score_of_rule(rule, pair)) for rule in rules.rules]
        return [(rule, formula) for rule, formula in scores if formula is not None]
    return [(default_rule(formula), formula) for formula in headline(pair)]


def _decide_rule(
    rule: Rule, formula: ScoreDefinition, pair: Pair, models: Sequence[Replicates], rules: Rules, looks: Looks | None
) -> RuleVerdict:
    new, old = (float(model.score(formula)[0]) for model in models)
    cells = cells_of(formula, pair.cells)
    answer = partial(
        RuleVerdict,
        rule,
        pair.old.data,
        len(pair.ids),
        formula.label,
        formula.unit,
        unreadable=pair.new.unreadable,
        unreadable_before=pair.old.unreadable,
        cells=cells,
        passes=passes_used(pair, looks),
        answers=class_map_words(pair.new.header),
    )
    look = None if looks is None or rule.what == SHOWN else looks.at(cells, pair.counts, len(pair.new.unreadable))
    if not rule.compares:
        bounds, verdict = _bound_verdict(rule, formula, models[0], look)
        passed = verdict == MET or (verdict == NOT_RESOLVED and rules.unresolved == "pass")
        return answer(float("nan"), new, bounds, verdict, passed)
    same = is_same_model(pair.new.header, pair.old.header)
    interval = interval_of_difference(formula, models, same_model=same)
    if rule.what == SHOWN:
        return answer(old, new, interval, SHOWN, True)
    if look is not None and not (same and interval.low == interval.high):  # a model is equal to itself
        interval = difference_at_look(formula, models, look)
    sign = -1 if formula.better == "low" else 1
    gain = interval if sign == 1 else Interval(-interval.value, -interval.high, -interval.low, 0.95)
    margin = _margin(rule, formula, rules)
    complete = look.complete if look is not None else not pair.rows
    what = "images" if complete else "passes"
    verdict, reason = _verdict(gain, rule, margin, images=len(pair.ids), enough=rules.images, what=what, sign=sign)
    if look is not None and isnan(look.bound):
        verdict, reason = NOT_RESOLVED, "too few images in its cells to look at it"
    return answer(old, new, interval, verdict, _passes(verdict, gain, rule, margin, rules), reason)


def _bound_verdict(rule: Rule, formula: ScoreDefinition, model: Replicates, look: Look | None) -> tuple[Interval, str]:
    """Interval and verdict of ``>=`` and ``<=``: by the value, before all images are measured by the interval."""
    assert rule.number is not None
    up = rule.what == ">="
    if look is None or look.complete:
        bounds = interval_of_score(formula, model)
        met = bounds.value >= rule.number if up else bounds.value <= rule.number
        return bounds, MET if met else MISSED
    bounds = score_at_look(formula, model, look)
    if bounds.low >= rule.number if up else bounds.high <= rule.number:
        return bounds, MET
    return bounds, MISSED if (bounds.high < rule.number if up else bounds.low > rule.number) else NOT_RESOLVED


def passes_used(pair: Pair, looks: Looks | None) -> str:
    """How many passes of the new model were used, of how many; empty if all are. A pass is one image in one cell."""
    if looks is not None:
        done = sum(len(pair.new.rows[cell]) if pair.new.rows else pair.new.count for cell in pair.cells)
        return f"{done:,} of {looks.images * len(pair.cells):,} passes"
    images = pair.new.count + len(pair.new.missing)
    return f"{sum(pair.counts.values()):,} of {images * len(pair.cells):,} passes" if pair.rows else ""


def _margin(rule: Rule, formula: ScoreDefinition, rules: Rules) -> float:
    if rule.number is not None:
        return rule.number
    return rules.margin if rule.what == NO_WORSE and formula.unit.startswith("%") else 0.0


def _verdict(
    gain: Interval, rule: Rule, margin: float, *, images: int, enough: int, what: str, sign: int
) -> tuple[str, str]:
    if isnan(gain.value):
        return NOT_RESOLVED, "the score of one of the models is undefined"
    if images < enough:
        wholly = "; the whole interval lies below the rule's bound" if _surely_missed(gain, rule, margin) else ""
        return NOT_RESOLVED, f"too few images: {images}, at least {enough} are needed{wholly}"
    if isnan(gain.low):  # a score of a whole set without replicates
        verdict = verdict_of(_without_interval(gain), margin=margin, asked=rule.what)
        return verdict, "this score has no interval: decided by its value alone"
    verdict = verdict_of(gain, margin=margin, asked=rule.what)
    return verdict, _how_to_resolve(gain, rule, margin, what, sign) if verdict == NOT_RESOLVED else ""


def verdict_of(gain: Interval, *, margin: float, asked: str = NO_WORSE) -> str:
    """Verdict for the gain of the new model; ``asked`` is ``no worse`` (by the margin) or ``better``."""
    if asked == BETTER:
        if gain.low > margin:
            return BETTER
        return WORSE if gain.high < 0 else NO_WORSE if gain.high <= margin else NOT_RESOLVED
    if gain.low > 0:
        return BETTER
    return NO_WORSE if gain.low >= -margin else WORSE if gain.high < -margin else NOT_RESOLVED


def _how_to_resolve(gain: Interval, rule: Rule, margin: float, what: str, sign: int) -> str:
    """How to resolve it, in words: an interval shrinks with the root of their number; errors have the sign −1."""
    wanted = margin if rule.what == BETTER else 0 - margin  # not −0
    distance, half = abs(gain.value - wanted), (gain.high - gain.low) / 2
    times = (half / distance) ** 2 if distance else float("inf")
    more = f"about {np.ceil(10 * times) / 10:g} times as many {what}" if times < 1000 else f"far more {what}"
    return f"the interval includes {sign * wanted or 0.0:+g}; {more} or a wider margin would resolve it"


def _passes(verdict: str, gain: Interval, rule: Rule, margin: float, rules: Rules) -> bool:
    if verdict == NOT_RESOLVED:
        possible = not isnan(gain.value) and not _surely_missed(gain, rule, margin)
        return rules.unresolved == "pass" and possible
    return verdict == BETTER or (verdict == NO_WORSE and rule.what == NO_WORSE)


def _surely_missed(gain: Interval, rule: Rule, margin: float) -> bool:
    """Whether the whole interval lies below the rule's bound, however few images there are."""
    known = _without_interval(gain) if isnan(gain.low) else gain
    verdict = verdict_of(known, margin=margin, asked=rule.what)
    return verdict == WORSE or (verdict == NO_WORSE and rule.what == BETTER)


def _without_interval(gain: Interval) -> Interval:
    return Interval(gain.value, gain.value, gain.value, gain.level)
