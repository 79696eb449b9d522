"""Decision card: which model to use, and a verdict per candidate on clean, corrupted and attacked images and domains.

All verdicts of one card are corrected together for their number (`holdfast.metrics.multiple_tests`). Which model
is best is tested between all pairs, because the best of several is chosen by the same numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.metrics.comparison import Comparison
from holdfast.metrics.intervals import Interval
from holdfast.metrics.multiple_tests import BETTER, IMAGES, MARGIN, NOT_RESOLVED, WORSE, Verdict, verdicts
from holdfast.metrics.summary import Score
from holdfast.reporting.comparable import DataSet, Entry
from holdfast.reporting.formatting import NOT_MEASURED, list_names, number, signed, span, with_bounds
from holdfast.reporting.quantities import phrase, sentence_words, short_label, tested_scores

NOT_BOTH = "not measured"
Pairs = Mapping[tuple[int, int], Comparison]  # by the places of the shown models


@dataclass(frozen=True)
class Chip:
    """One verdict on one quantity; ``word`` is that of the correction, the interval the paired 95 % interval."""

    score: str
    label: str
    word: str
    value: str = NOT_MEASURED
    interval: str = ""

    @property
    def kind(self) -> str:
        """The verdict as a CSS class."""
        return self.word.replace(" ", "-")


@dataclass(frozen=True)
class Candidate:
    """One model against the baseline: a chip per quantity."""

    entry: Entry
    chips: Sequence[Chip]
    verdicts: Mapping[str, Verdict]


@dataclass(frozen=True)
class AgainstBaseline:
    """All candidates against one baseline."""

    baseline: Entry
    quantities: Sequence[Score]
    candidates: Sequence[Candidate]

    @property
    def tests(self) -> int:
        """Number of verdicts that are corrected together."""
        return sum(len(candidate.verdicts) for candidate in self.candidates)


@dataclass(frozen=True)
class Decision:
    """The decision on one data set.

    Attributes:
        title: what to do: ``Use afat`` or ``No clear winner``.
        reason: why, with numbers.
        caveat: on what this rests.
        entry: the model that is best, proved or not.
        clear: whether there is a winner.
        tables: verdicts against every baseline that readers can choose, the first run first.
    """

    title: str
    reason: str
    caveat: str
    entry: Entry
    clear: bool
    tables: Sequence[AgainstBaseline]


def decide(data: DataSet, pairs: Pairs, tables: Sequence[AgainstBaseline]) -> Decision | None:
    """The decision between the shown models; None with fewer than two or without a common score."""
    models, by = data.shown_models, data.ranked_by
    if by is None or not tables or not tables[0].candidates:
        return None
    ranked = [place for place, entry in enumerate(models) if by.name in entry.summary]
    if len(ranked) < 2:
        return None
    best = max(ranked, key=lambda place: _goodness(models[place].summary[by.name]))
    against = {other: verdict for (one, other), verdict in ranked_verdicts(pairs, by.name).items() if one == best}
    if not against:
        return None
    return _decision(data, by, best, against, tables)


def ranked_verdicts(pairs: Pairs, score: str) -> dict[tuple[int, int], Verdict]:
    """Verdicts on one score between all pairs of models, corrected for the number of pairs; in both directions."""
    found = {pair: pairs[pair].differences[score] for pair in pairs if score in pairs[pair].differences}
    once = {pair: difference for pair, difference in found.items() if pair[0] < pair[1]}
    known = dict(zip(once, verdicts(list(once.values())), strict=True))
    # the same level in the other direction, and "no worse" is asked of the other model
    turned = {
        (b, a): verdict for (a, b), verdict in zip(once, verdicts([d.reversed() for d in once.values()]), strict=True)
    }
    return {**known, **turned}


def against_baseline(data: DataSet, pairs: Pairs, place: int) -> AgainstBaseline:
    """Verdicts of every other model against the one at this place."""
    models = data.shown_models
    quantities = tested_scores(models, data.task, otherwise=data.ranked_by)
    tested = {
        (other, score.name): pairs[other, place].differences[score.name]
        for other in range(len(models))
        if (other, place) in pairs
        for score in quantities
        if score.name in pairs[other, place].differences
    }
    found = dict(zip(tested, verdicts(list(tested.values())), strict=True))
    candidates = []
    for other, entry in enumerate(models):
        own = {name: verdict for (which, name), verdict in found.items() if which == other}
        if own:
            candidates.append(Candidate(entry, [_chip(score, own.get(score.name)) for score in quantities], own))
    return AgainstBaseline(models[place], quantities, candidates)


def _chip(score: Score, verdict: Verdict | None) -> Chip:
    if verdict is None:
        return Chip(score.name, short_label(score), NOT_BOTH)
    interval = verdict.difference.interval
    bounds = "" if interval.low != interval.low else span(interval.low, interval.high)
    return Chip(score.name, short_label(score), verdict.word, signed(interval.value), bounds)


def _goodness(score: Score) -> float:
    return score.value if score.better == "high" else -score.value


def _decision(
    data: DataSet, by: Score, best: int, against: Mapping[int, Verdict], tables: Sequence[AgainstBaseline]
) -> Decision:
    models = data.shown_models
    entry, first = models[best], models[0]
    open_to = [other for other, verdict in against.items() if verdict.word != BETTER]
    own = next((candidate for candidate in tables[0].candidates if candidate.entry is entry), None)
    worse = [chip for chip in own.chips if chip.word == WORSE] if own is not None else []
    corrected = own is None or by.name not in own.verdicts or own.verdicts[by.name].word != NOT_RESOLVED
    clear = not open_to and corrected and not any(chip.score.endswith("clean") for chip in worse)
    if open_to:
        title, reason = "No clear winner", _tie(data, by, best, against, open_to)
    elif not corrected:  # the table below tests more than this score, and does not resolve it
        title = "No clear winner"
        lead = _best(models, by, best, against, data.task)
        reason = f"{lead}; corrected for the {tables[0].tests} verdicts below, this is not resolved"
    else:
        title = f"{'Keep' if entry is first else 'Use'} {entry.name}" if clear else "No clear winner: a trade-off"
        reason = _best(models, by, best, against, data.task) + _elsewhere(own, worse, by, first)
    return Decision(title, f"{reason}.", _caveat(data, tables[0]), entry, clear, tables)


def _best(models: Sequence[Entry], by: Score, best: int, against: Mapping[int, Verdict], task: str) -> str:
    rival = min(against, key=lambda other: abs(against[other].difference.interval.value))
    difference = against[rival].difference
    others = "" if len(against) == 1 else ", the next best"
    return (
        f"{models[best].name} is best {phrase(by, task)}: {number(difference.first)} vs. {number(difference.second)} "
        f"of {models[rival].name}{others}, {points(difference.interval)}"
    )


def nothing_is_right(data: DataSet) -> bool:
    """Whether every model has 0 in the score of the ranking, so that there is nothing to compare."""
    by = data.ranked_by
    known = [entry.summary[by.name].value for entry in data.shown_models if by and by.name in entry.summary]
    return by is not None and by.better == "high" and bool(known) and not any(known)


def _tie(data: DataSet, by: Score, best: int, against: Mapping[int, Verdict], open_to: Sequence[int]) -> str:
    models, task = data.shown_models, data.task
    value, words = number(models[best].summary[by.name].value), sentence_words(by, task)
    if nothing_is_right(data):
        return f"Every model has {words} {value}: train longer, or check the data and their classes"
    closest = min(open_to, key=lambda other: abs(against[other].difference.interval.value))
    interval = against[closest].difference.interval
    names = list_names([models[other].name for other in open_to])
    beaten = [models[other].name for other in against if other not in open_to]
    some = f", closest to {models[closest].name}" if len(open_to) > 1 else ""
    text = (
        f"{models[best].name} has the highest {words}, {value}, "
        f"but these images do not tell it from {names}{some}: {points(interval)}"
    )
    return text + (f". It is better than {list_names(beaten)}" if beaten else "")


def _elsewhere(own: Candidate | None, worse: Sequence[Chip], by: Score, baseline: Entry) -> str:
    """What the best model does to clean images, and where it is worse than the baseline."""
    if own is None:
        return ""
    clean = [
        f"{c.label} {c.word}: {c.value} points ({c.interval})" for c in own.chips if c.score == "clean" and c.interval
    ]
    others = [chip.label for chip in worse if not chip.score.endswith("clean") and chip.score != by.name]
    parts = clean + ([f"worse under {list_names(others, most=3)}"] if others else [])
    return f". Against {baseline.name}, {'; '.join(parts)}" if parts else ""


def points(interval: Interval) -> str:
    """A difference in a sentence: ``+1.0 points (0.0 to 3.0)``."""
    return with_bounds(f"{signed(interval.value)} points", interval.low, interval.high)


def _caveat(data: DataSet, table: AgainstBaseline) -> str:
    counts = sorted({entry.summary.images for entry in data.shown_models})
    images = f"{counts[0]:,} images" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,} images"
    by = data.ranked_by
    without = [entry.name for entry in data.shown_models if by is not None and by.name not in entry.summary]
    chips = [verdict for candidate in table.candidates for verdict in candidate.verdicts.values()]
    beyond = any(verdict.word == NOT_RESOLVED and verdict.difference.interval.excludes_zero for verdict in chips)
    corrected = (
        f"Verdicts are corrected together for the {table.tests} comparisons of this table (Holm)"
        if table.tests > 1
        else "The verdict is that of the 95 % interval"
    )
    strict = " The correction is stricter than the 95 % intervals shown." if beyond else ""
    few = f" A gate needs at least {IMAGES} images to decide." if counts[0] < IMAGES else ""
    unranked = f" Not ranked, because {by.label} is not measured: {list_names(without)}." if by and without else ""
    return (
        f"{images}; {seeds_text(data)}.{unranked} {corrected}; no worse: a loss of at most "
        f"{MARGIN:g} points.{strict}{few}"
    )


def has_seeds(data: DataSet) -> bool:
    """Whether a recipe was trained with several seeds."""
    return any(len({str(e.run.recipe.get("seed")) for e in entries}) > 1 for entries in data.seed_groups.values())


def seeds_text(data: DataSet) -> str:
    """How many trainings stand behind each model, as far as the recipes say."""
    return "several seeds of some recipes" if has_seeds(data) else "one training each, so retraining is not covered"
