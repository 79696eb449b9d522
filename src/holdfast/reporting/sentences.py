"""What a report says, in a few sentences: computed, never written by hand."""

from dataclasses import dataclass

from holdfast.metrics.comparison import Comparison, Difference
from holdfast.reporting.entries import DataSet, Entry
from holdfast.reporting.text import kind_label, number, signed, span

CORRUPTED = ("mean_corruption_accuracy", "mean_corruption_accuracy_partial")


@dataclass(frozen=True)
class Sentence:
    """One finding; ``verdict`` is better, worse, unclear or plain."""

    text: str
    verdict: str = "plain"


def sentences(data: DataSet, compared: list[tuple[Entry, Comparison]]) -> list[Sentence]:
    """How the first model does, and how each of the others differs from it."""
    return [_alone(data.baseline, data.spec), *(s for entry, c in compared for s in _against(entry, data.baseline, c))]


def _alone(entry: Entry, data: str) -> Sentence:
    scores = entry.summary.scores
    parts = []
    if "clean" in scores:
        parts.append(f"{number(scores['clean'].value)} % of the clean images")
    corrupted = next((name for name in CORRUPTED if name in scores), None)
    if corrupted:
        parts.append(f"{number(scores[corrupted].value)} % of the corrupted ones")
    text = f"On {data}, {entry.name} classifies {' and '.join(parts)} correctly" if parts else f"{entry.name} on {data}"
    kinds = [score for score in entry.summary if score.name.startswith("accuracy/")]
    if kinds:
        worst = min(kinds, key=lambda score: score.value)
        text += f"; {kind_label(worst.label)} is its hardest corruption ({number(worst.value)} %)"
    return Sentence(f"{text}.")


def _against(entry: Entry, baseline: Entry, comparison: Comparison) -> list[Sentence]:
    """Corrupted images if there are any, else clean ones; and the attack that tells the two apart most."""
    found = comparison.differences
    shown = [found[name] for name in (*CORRUPTED, "clean") if name in found][:1]
    attacks = [d for d in found.values() if d.name.startswith("attack/") and d.verdict != "unclear"]
    shown += sorted(attacks, key=lambda difference: -abs(difference.interval.value))[:1]
    return [_difference(entry, baseline, difference) for difference in shown]


def _difference(entry: Entry, baseline: Entry, difference: Difference) -> Sentence:
    attack = f"images under {difference.name.removeprefix('attack/')}"
    what = {"clean": "clean images", **dict.fromkeys(CORRUPTED, "corrupted images")}.get(difference.name, attack)
    gap = f"{signed(difference.interval.value)} points ({span(difference.interval.low, difference.interval.high)})"
    numbers = f"{number(difference.first)} % against {number(difference.second)} % of the {what}"
    if difference.verdict == "unclear":
        return Sentence(f"{entry.name} and {baseline.name} cannot be told apart: {numbers}, {gap}.", "unclear")
    return Sentence(f"{entry.name} is {difference.verdict} than {baseline.name}: {numbers}, {gap}.", difference.verdict)
