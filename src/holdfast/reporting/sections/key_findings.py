"""Key findings of a report in words: computed sentences about scores and differences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from holdfast.metrics.carry_over import CARRIES_OVER, SPECIFIC, CarryOver
from holdfast.metrics.comparison import Comparison, carry_over_of_sets
from holdfast.metrics.multiple_tests import BETTER, MARGIN, NO_WORSE, NOT_RESOLVED, WORSE, Verdict
from holdfast.records.records import Records
from holdfast.reporting.comparable import DataSet, Entry
from holdfast.reporting.formatting import number
from holdfast.reporting.quantities import kind_words, phrase, weakest, words_of
from holdfast.reporting.sections.decision import AgainstBaseline, Pairs, points


@dataclass(frozen=True)
class Sentence:
    """One finding; ``verdict`` is better, worse, unclear or plain."""

    text: str
    verdict: str = "plain"


def alone(entry: Entry, data: DataSet, title: str) -> Sentence:
    """The scores of one model on clean and corrupted images, or on an official set, and its hardest corruption."""
    scores = entry.summary.scores
    shown = [scores["clean"]] if "clean" in scores else []
    shown += [score for score in entry.summary if score.family == "corruption" and not score.kind][:1]
    shown = shown or [score for score in entry.summary if score.family == "set"][:1]
    parts = [f"{number(score.value)} {phrase(score, data.task)}" for score in shown]
    text = (
        f"On {title}, {entry.name} has {words_of(data.task)} {' and '.join(parts)}"
        if parts
        else f"{entry.name} on {title}"
    )
    worst = weakest(list(entry.summary), count=1)
    hardest = f"; {kind_words(worst[0])} is its hardest {worst[0].family} ({number(worst[0].value)})" if worst else ""
    return Sentence(f"{text}{hardest}.")


def against(table: AgainstBaseline, data: DataSet, pairs: Pairs) -> list[Sentence]:
    """What the verdicts of a decision say of every candidate: corrupted, else clean images, and the clearest attack."""
    found = []
    models = data.shown_models
    for candidate in table.candidates:
        verdicts = list(candidate.verdicts.values())
        corrupted = [v for v in verdicts if v.difference.family == "corruption"][:1]
        shown = corrupted or [v for v in verdicts if v.difference.name == "clean"]
        attacks = [v for v in verdicts if v.difference.family == "attack" and v.word in (BETTER, WORSE)]
        shown += sorted(attacks, key=lambda v: -abs(v.difference.interval.value))[:1]
        found += [_sentence(candidate.entry, table.baseline, verdict, data.task) for verdict in shown]
        comparison = pairs.get((models.index(candidate.entry), models.index(table.baseline)))
        found += _carried(candidate.entry, table.baseline, comparison)
        found += _consistent(candidate.entry, table.baseline, comparison)
    return found


def _carried(entry: Entry, baseline: Entry, comparison: Comparison | None) -> list[Sentence]:
    if comparison is None or comparison.carry_over is None:
        return []
    names = {comparison.first: entry.name, comparison.second: baseline.name}
    return [carry_over_sentence(comparison.carry_over, names)]


def _consistent(entry: Entry, baseline: Entry, comparison: Comparison | None) -> list[Sentence]:
    """Error consistency on cue conflict stimuli, where it is usually reported."""
    found = comparison.consistency.get("cue-conflict") if comparison is not None else None
    if found is None:
        return []
    bounds = f"κ = {found.value:.3f}, 95 % interval {found.bounds('.3f')}"
    return [Sentence(f"Error consistency of {entry.name} and {baseline.name} on cue conflict stimuli: {bounds}.")]


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


def _sentence(entry: Entry, baseline: Entry, verdict: Verdict, task: str) -> Sentence:
    difference = verdict.difference
    numbers = f"{words_of(task)} {number(difference.first)} vs. {number(difference.second)}"
    numbers += f", {points(difference.interval)}"
    where = phrase(difference, task)
    if verdict.word == NOT_RESOLVED:
        return Sentence(f"{entry.name} and {baseline.name} are not told apart {where}: {numbers}.", "unclear")
    shade = verdict.word if verdict.word in (BETTER, WORSE) else "plain"
    margin = f"by more than {MARGIN:g} points " if verdict.word == NO_WORSE else ""
    return Sentence(f"{entry.name} is {verdict.word} than {baseline.name} {margin}{where}: {numbers}.", shade)
