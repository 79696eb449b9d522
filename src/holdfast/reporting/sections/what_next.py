"""What next: the weakest kinds, the images or seeds that would resolve what is open, and the commands for it."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

from holdfast.metrics.multiple_tests import MARGIN, NOT_RESOLVED, Verdict
from holdfast.reporting.comparable import DataSet, Entry
from holdfast.reporting.formatting import list_names, number, title_of
from holdfast.reporting.quantities import kind_words, phrase, weakest
from holdfast.reporting.sections.decision import Decision, Pairs, has_seeds, nothing_is_right, ranked_verdicts
from holdfast.reporting.sections.reasons import reason
from holdfast.reporting.sections.reproduce import evaluate_command, model_word

MOST = 1000  # times as many images; more are out of reach
ATTACKS = {"classification": "pgd5", "segmentation": "segpgd5"}
MOST_OPEN = 5  # comparisons that are listed


@dataclass(frozen=True)
class Step:
    """One thing to do next, and the commands for it."""

    text: str
    commands: Sequence[str] = ()


def what_next(data: DataSet, pairs: Pairs, decision: Decision | None, *, examples: bool) -> list[Step]:
    """The steps of one data set, the most useful first."""
    entry = decision.entry if decision is not None else data.baseline
    if decision is not None and nothing_is_right(data):
        return []  # the decision says what to do: more images or seeds would not help
    return [
        *_weakest(data, entry, examples),
        *_open(data, pairs, decision),
        *_seeds(data, decision),
        *_missing(data, entry),
    ]


def _weakest(data: DataSet, entry: Entry, examples: bool) -> Iterator[Step]:
    found = weakest(list(entry.summary), count=3)
    if not found:
        return
    kinds = [f"{kind_words(score)} ({number(score.value)})" for score in found]
    why = reason(entry, found[0].family, found[0].kind)
    where = {"corruption": "under", "condition": "in"}.get(found[0].family, "on")
    why = f" {title_of(where)} {kind_words(found[0])}, {why}." if why else ""
    clean = entry.summary.scores.get("clean")
    before = f", against {number(clean.value)} on clean images" if clean is not None else ""
    lab = shlex.join(["holdfast", "lab", model_word(entry.run, entry.records.header), "--data", data_word(entry)])
    look = "see their failures below, and change images yourself in the lab" if examples else "change images in the lab"
    yield Step(f"{entry.name} is weakest {where} {list_names(kinds)}{before}.{why} {title_of(look)}.", [lab])


def _open(data: DataSet, pairs: Pairs, decision: Decision | None) -> Iterator[Step]:
    if decision is None:
        return
    unclear = _unresolved(data, pairs, decision)
    if not unclear:
        return
    now = decision.entry.summary.images
    needed = {words: _images(verdict, now) for words, verdict in unclear.items()}
    reachable = [count for count in needed.values() if count is not None]
    parts = [f"{words}, {f'about {count:,}' if count else 'far more'}" for words, count in needed.items()]
    shown = "; ".join([*parts[:MOST_OPEN], *([f"{len(parts) - MOST_OPEN} more"] if len(parts) > MOST_OPEN else [])])
    text = f"Not resolved by {now:,} images, with the number that would resolve it: {shown}."
    runs = {entry.number: entry for entry in (decision.entry, *_rivals(data, pairs, decision))}
    all_used = any(entry.records.header.get("limit") is None for entry in runs.values())
    if all_used:
        more = "All images of the data set are used, so this takes other or more test images." if reachable else ""
        if any(entry.summary.passes is not None for entry in runs.values()):
            more = "Evaluate again with a smaller --until, or without; measured passes are kept."
        yield Step(f"{text} {more}".strip())
    else:
        commands = (
            [evaluate_command(e.run, e.records, limit=max(reachable)) for e in runs.values()] if reachable else []
        )
        yield Step(f"{text} Measured images are kept.", commands[:4])


def _unresolved(data: DataSet, pairs: Pairs, decision: Decision) -> dict[str, Verdict]:
    """What is open between the best model, its rivals and the baseline, in words."""
    models, by = data.shown_models, data.ranked_by
    best, found = models.index(decision.entry), {}
    for (one, other), verdict in (ranked_verdicts(pairs, by.name) if by is not None else {}).items():
        if one == best and verdict.word == NOT_RESOLVED and by is not None:
            found[f"{models[best].name} and {models[other].name} {phrase(by, data.task)}"] = verdict
    table = decision.tables[0]
    own = next((candidate for candidate in table.candidates if candidate.entry is decision.entry), None)
    for score in table.quantities if own is not None else ():
        tested = own.verdicts.get(score.name) if own is not None else None
        if tested is not None and tested.word == NOT_RESOLVED:
            found.setdefault(f"{decision.entry.name} and {table.baseline.name} {phrase(score, data.task)}", tested)
    return found


def _rivals(data: DataSet, pairs: Pairs, decision: Decision) -> list[Entry]:
    models, by = data.shown_models, data.ranked_by
    best = models.index(decision.entry)
    ranked = ranked_verdicts(pairs, by.name) if by is not None else {}
    open_to = [models[other] for (one, other), v in ranked.items() if one == best and v.word == NOT_RESOLVED]
    return [*open_to, decision.tables[0].baseline]


def _images(verdict: Verdict, now: int) -> int | None:
    """Images at which the interval of its level would leave out 0, or minus the margin; None if out of reach."""
    interval, sign = verdict.interval, 1 if verdict.difference.better == "high" else -1
    gain, half = sign * interval.value, (interval.high - interval.low) / 2
    distance = max((each for each in (abs(gain), gain + MARGIN) if 0 < each < half), default=0.0)
    times = (half / distance) ** 2 if distance and isfinite(half) else float("inf")
    return _rounded_up(now * times) if times < MOST else None


def _rounded_up(count: float) -> int:
    unit = 10 ** max(0, floor(log10(max(count, 1))) - 1)
    return ceil(count / unit) * unit


def _seeds(data: DataSet, decision: Decision | None) -> Iterator[Step]:
    """Further trainings of the best model and the baseline, where every recipe was trained once."""
    if decision is None or has_seeds(data):
        return
    trained = {e.number: e for e in (decision.entry, decision.tables[0].baseline) if e.run.recipe and e.run.folder}
    commands = []
    for entry in trained.values():
        seed = int(entry.run.recipe.get("seed") or 0) + 1
        recipe = str(entry.run.folder / "recipe.yaml") if entry.run.folder is not None else ""
        commands.append(
            shlex.join(["holdfast", "train", recipe, f"--seed={seed}", "--out", f"{entry.run.folder}-seed{seed}"])
        )
    if commands:
        yield Step(
            "One training each: intervals do not cover retraining. Two more seeds show how much it changes.", commands
        )


def _missing(data: DataSet, entry: Entry) -> Iterator[Step]:
    families = {cell.spec.family for cell in entry.records.cells.values()}
    word, images = model_word(entry.run, entry.records.header), entry.records.header.get("limit")
    limit = ["--limit", str(images)] if images is not None else []
    if "corruption" not in families and data.protocol == "on-the-fly":
        command = ["holdfast", "evaluate", word, "--data", data_word(entry), "--suite", "clean,corruptions", *limit]
        yield Step("Corruptions are not measured.", [shlex.join(command)])
    attack = ATTACKS.get(data.task)
    if "attack" not in families and attack and data.protocol == "on-the-fly":
        command = ["holdfast", "evaluate", word, "--data", data_word(entry), "--suite", attack, *limit]
        yield Step("No attack was measured.", [shlex.join(command)])


def data_word(entry: Entry) -> str:
    """The data of a record set as on a command line."""
    return str(entry.records.header.get("data", ""))
