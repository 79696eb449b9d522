"""Key findings of a report: computed sentences about scores and differences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from holdfast.metrics.carry_over import CARRIES_OVER, SPECIFIC, CarryOver
from holdfast.metrics.comparison import Comparison, Difference, carry_over_of_sets
from holdfast.metrics.scoring.registry import scoring_of
from holdfast.metrics.summary import Score
from holdfast.records.records import Records
from holdfast.reporting.comparable import DataSet, Entry
from holdfast.reporting.formatting import kind_label, number, signed, span


@dataclass(frozen=True)
class Sentence:
    """One finding; ``verdict`` is better, worse, unclear or plain."""

    text: str
    verdict: str = "plain"


def sentences(data: DataSet, compared: list[tuple[Entry, Comparison]]) -> list[Sentence]:
    """Sentences about the baseline's scores and the differences of the other models."""
    return [_alone(data.baseline, data.spec), *(s for entry, c in compared for s in _against(entry, data.baseline, c))]


def _alone(entry: Entry, data: str) -> Sentence:
    scores = entry.summary.scores
    parts = []
    if "clean" in scores:
        parts.append(f"{number(scores['clean'].value)} % of the clean images")
    corrupted = next((score for score in entry.summary if _is_corrupted(score)), None)
    if corrupted:
        parts.append(f"{number(corrupted.value)} % of the corrupted ones")
    text = f"{entry.name} on {data}"
    if parts and scoring_of(entry.records.task).one_class:
        text = f"On {data}, {entry.name} classifies {' and '.join(parts)} correctly"
    elif parts:
        shown = [scores["clean"]] if "clean" in scores else []
        texts = [f"{score.label} {number(score.value)} %" for score in (*shown, *([corrupted] if corrupted else []))]
        text = f"On {data}, {entry.name} has {' and '.join(texts)}"
    kinds = [score for score in entry.summary if score.family == "corruption" and score.kind and score.better == "high"]
    if kinds:
        worst = min(kinds, key=lambda score: score.value)
        text += f"; {kind_label(worst.label)} is its hardest corruption ({number(worst.value)} %)"
    return Sentence(f"{text}.")


def _against(entry: Entry, baseline: Entry, comparison: Comparison) -> list[Sentence]:
    """Differences on corrupted, else clean images, and under the attack with the largest difference."""
    found = comparison.differences
    shown = [d for d in found.values() if _is_corrupted(d)][:1] or [found[name] for name in ("clean",) if name in found]
    attacks = [d for d in found.values() if d.family == "attack" and d.verdict != "unclear"]
    shown += sorted(attacks, key=lambda difference: -abs(difference.interval.value))[:1]
    carried = [comparison.carry_over] if comparison.carry_over is not None else []
    names = {comparison.first: entry.name, comparison.second: baseline.name}
    return [
        *(_difference(entry, baseline, difference) for difference in shown),
        *(carry_over_sentence(each, names) for each in carried),
    ]


def carry_over_sentence(found: CarryOver, names: Mapping[str, str]) -> Sentence:
    """Whether a gain on C carries over to C-bar, with the names that the page calls the models by."""
    text = str(replace(found, better=names[found.better], other=names[found.other]))
    verdict = {CARRIES_OVER: "better", SPECIFIC: "worse"}.get(found.verdict, "unclear")
    return Sentence(f"{text[0].upper()}{text[1:]}.", verdict)


def carry_over_sentences(sets: Sequence[DataSet]) -> list[Sentence]:
    """The same of stored sets, where C and C-bar are two data sets of the same images."""
    found = []
    for one, other in combinations(sets, 2):
        places = {(entry.run.number, entry.view): entry for entry in one.shown_models}
        for entry in other.shown_models[1:]:
            pairs = [(places.get((each.run.number, each.view)), each) for each in (entry, other.baseline)]
            if all(place is not None for place, _ in pairs):
                sides = [[_named(each) for each in side if each is not None] for side in zip(*pairs, strict=True)]
                found.append(carry_over_of_sets(*sides))
    return [carry_over_sentence(each, {name: name for name in (each.better, each.other)}) for each in found if each]


def _named(entry: Entry) -> Records:
    return replace(entry.records, header={**entry.records.header, "model": entry.name}, folder=None)


def _is_corrupted(score: Score | Difference) -> bool:
    """Whether this is the mean over all corruptions."""
    return score.family == "corruption" and not score.kind


def _difference(entry: Entry, baseline: Entry, difference: Difference) -> Sentence:
    what = "clean images" if difference.name == "clean" else f"images under {difference.kind}"
    what = "corrupted images" if _is_corrupted(difference) else what
    gap = f"{signed(difference.interval.value)} points ({span(difference.interval.low, difference.interval.high)})"
    numbers = f"{number(difference.first)} % vs. {number(difference.second)} % of the {what}"
    if difference.verdict == "unclear":
        return Sentence(f"{entry.name} and {baseline.name} do not differ significantly: {numbers}, {gap}.", "unclear")
    return Sentence(f"{entry.name} is {difference.verdict} than {baseline.name}: {numbers}, {gap}.", difference.verdict)
