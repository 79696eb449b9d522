"""Forecast of a gate that stops early: which rules all images together can decide, if the new model is as good."""

from collections.abc import Sequence
from math import ceil, sqrt

from scipy.special import ndtri

from holdfast.gate.paired_scores import PairedScores
from holdfast.gate.rules import Rule, Rules
from holdfast.gate.scores import cells_of, tested_rules
from holdfast.metrics.group_sequential import ERROR
from holdfast.metrics.multiple_tests import NO_WORSE
from holdfast.metrics.replicates import replicate
from holdfast.metrics.scoring.base import ScoreDefinition

DIFFER = 0.4  # answers of two models that differ, by those of two independent ones; 0.35 to 0.5 of models trained alike
# share of the variance of a difference that all cells of an image have in common; 0.2 to 0.35 of models trained alike
ALIKE = 0.2
OFTEN = 0.9  # suggested margins and numbers of images decide in so many runs


def forecast(old: Sequence[PairedScores], rules: Rules) -> list[str]:
    """A sentence for every rule that an equally good model would leave open in most runs."""
    tested = [tested_rules(each, rules) for each in old]
    count = max(1, sum(map(len, tested)))
    return [
        line
        for side, asked in zip(old, tested, strict=True)
        for rule, formula in asked
        if (line := _sentence(side, rule, formula, rules, rule_count=count))
    ]


def _sentence(side: PairedScores, rule: Rule, formula: ScoreDefinition, rules: Rules, *, rule_count: int) -> str:
    if rule.what != NO_WORSE or formula.unit != "%":
        return ""
    margin = rules.margin if rule.number is None else rule.number
    images = side.count + len(side.missing) - len(side.unreadable)
    if side.seen is not None:
        images = len(side.seen)
    error = foreseen_error(side, formula, images=images)
    bound = -float(ndtri(ERROR / rule_count))  # of the last look, a little less than it will be
    if not error or margin > bound * error:
        return ""
    enough = (bound + float(ndtri(OFTEN))) * error
    text = (
        f"{rule.text}: an equally good model stays unresolved in most runs on {images:,} images (margin {margin:g}); "
    )
    more = f", or about {round_up(images * (enough / margin) ** 2):,} images" if margin else ""
    return f"{text}a margin of {ceil(10 * enough) / 10:g}{more} would decide it"


def foreseen_error(side: PairedScores, formula: ScoreDefinition, *, images: int) -> float:
    """Standard error, in points, of the difference to an equally good model on all images in all of its cells."""
    cells = cells_of(formula, side.cells)
    score = replicate(side.columns, None, of_sets=side.of_sets, rows=side.rows).score(formula)[0] / 100
    differ = DIFFER * 2 * score * (1 - score)
    return 100 * sqrt(max(0.0, differ) * (ALIKE + (1 - ALIKE) / len(cells)) / images)


def round_up(number: float) -> int:
    """Round up to two digits."""
    size = 10 ** max(0, len(str(ceil(number))) - 2)
    return ceil(number / size) * size
