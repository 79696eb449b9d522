"""Names of scores in the words of the task, one per quantity on all pages."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from holdfast.metrics.scoring.registry import scoring_of
from holdfast.metrics.summary import Score
from holdfast.reporting.comparable import Entry
from holdfast.reporting.formatting import kind_label

PARTIAL = " (partial: "  # in the label of a score over some of its cells
SINGLE = ("", "clean", "corruption", "sequence")  # families whose kinds are no quantities of their own


class Named(Protocol):
    """What scores and differences have in common."""

    name: str
    label: str
    unit: str
    better: str
    family: str
    table: str
    kind: str
    headline: bool


def scores_of(entries: Iterable[Entry]) -> list[Score]:
    """One score per name of all entries, in the order of their tables."""
    found: dict[str, Score] = {}
    for entry in entries:
        for score in entry.summary:
            found.setdefault(score.name, score)
    return list(found.values())


def is_headline(score: Any, task: str) -> bool:
    """Whether a score belongs to the first table: the task's headline scores, other sets, shape bias and attacks."""
    headline = score.headline or score.name.removesuffix("_partial") in scoring_of(task).headline
    return headline or (score.family in ("set", "attack", "shape") and not score.table)


def is_tested(score: Any, task: str) -> bool:
    """Whether a decision rests on the score: clean, corrupted, every attack, every other set, every domain."""
    if not score.unit.startswith("%") or score.better != "high":
        return False
    if score.family in ("", "clean"):
        return score.name.endswith("clean") and is_headline(score, task)
    if score.family == "corruption":
        return not score.kind and is_headline(score, task)
    return score.family not in ("sequence", "shape") and bool(score.kind)  # more shape bias is not better


def tested_scores(entries: Sequence[Entry], task: str, *, otherwise: Score | None) -> list[Score]:
    """All scores that a decision rests on; ``otherwise`` if there are none."""
    found = [score for score in scores_of(entries) if is_tested(score, task)]
    return found or ([otherwise] if otherwise is not None else [])


def words_of(task: str) -> str:
    """What the task scores: accuracy, mIoU, box AP."""
    scoring = scoring_of(task)
    return scoring.cell_words or ("accuracy" if scoring.one_class else "score")


def phrase(score: Any, task: str) -> str:
    """Where a score was measured, after a number or "better": ``under corruption (mCA)``, ``on clean images``."""
    if score.family == "corruption" and not score.kind:
        label = score.label.replace(" (", ", ").rstrip(")")  # mCA (partial: 1 of 15 kinds)
        return f"under corruption ({label})"
    if score.name.endswith("clean") or score.family == "clean":
        return "on clean images"
    where = {"set": "on", "condition": "in", "attack": "under", "corruption": "under", "domain": "on"}
    return f"{where.get(score.family, 'in')} {kind_label(score.label)}"


def short_label(score: Any) -> str:
    """Label of a chip or column."""
    return kind_label(score.label)


def kind_words(score: Any) -> str:
    """The kind of a score in a sentence, whose severities stand elsewhere: ``frost``."""
    return kind_label(score.kind if PARTIAL in score.label else score.label)


def partial_words(scores: Iterable[Any]) -> str:
    """What is partial about the scores of corruptions, ``severity 3``, if it is the same for all; else empty."""
    found = {score.label.partition(PARTIAL)[2].rstrip(")") for score in scores}
    return found.pop() if len(found) == 1 else ""


def sentence_words(score: Any, task: str) -> str:
    """The score in words: ``accuracy under corruption (mCA)``, ``mIoU on clean images``."""
    words = "mask AP" if score.name.startswith("mask_") else words_of(task)
    return f"{words} {phrase(score, task)}"


def weakest(scores: Sequence[Score], *, count: int) -> list[Score]:
    """The corruptions (else conditions, domains) with the lowest score of the first table; none if all are 0."""
    known = [score for score in scores if score.kind and score.table and score.better == "high"]
    families = [[score for score in known if score.family == name] for name in ("corruption", "condition", "domain")]
    kinds = next(filter(None, families), [])
    known = [score for score in kinds if score.table == kinds[0].table and score.value == score.value]
    return sorted(known, key=lambda score: score.value)[:count] if any(score.value for score in known) else []
