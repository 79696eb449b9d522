"""The plan of ``holdfast improve``: candidates, rungs, images and lengths that fit the budget, frozen in plan.json.

Half of the budget is for training, a quarter for choosing and a quarter for the report. Every rung has the same share,
and every candidate of a rung the same time: whoever has cheaper steps takes more of them, so plain training is always
the control of equal cost.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.improvement.candidates import ATTACKS, PLAIN, Candidate
from holdfast.improvement.costs import MeasuringCost, TrainingCost
from holdfast.improvement.halves import LEAST
from holdfast.improvement.select import rung_sizes
from holdfast.io import atomic
from holdfast.io.typed_json import from_json
from holdfast.runtime.dry_run import human_seconds

VERSION = 1
TARGET = 0.88  # share of the budget that the plan fills; forecasts err
LATEST = 1.05  # share after which nothing new is begun
TESTING, CHOOSING = 0.22, 0.22  # most that the report and the choice may take of it
LEAST_STEPS = 20  # of the shortest training, unless an epoch is shorter
ALPHAS = (0.25, 0.5, 0.75, 1.0)
FEW_ALPHAS = (0.5, 1.0)
REPORTED = 50  # images of the report, if there are so many: `holdfast gate` refuses fewer
ENOUGH = 100  # images to choose by, if there are so many: below, fewer mixtures are tried


@dataclass(frozen=True)
class Rung:
    """Some candidates, trained for the same time each.

    Attributes:
        keep: how many candidates are trained.
        seconds: wall time of each.
    """

    keep: int
    seconds: float


@dataclass(frozen=True)
class Step:
    """One measurement: where, how much of it."""

    data: str
    suites: tuple[str, ...]
    images: int


@dataclass(frozen=True)
class Plan:
    """All that decides the result, together with the images.

    Attributes:
        request: what was asked for: recipe, data, budget …
        start: spec of the model that interpolations start from; empty for none.
        probe: whether that is a linear probe, which is fitted first.
        candidates: recipe values by candidate, in order.
        costs: cost of each candidate's training.
        overhead: seconds of a run besides its steps.
        choice: cost of the measurement that chooses.
        report: cost of the measurement of the report.
        left_out: candidates that are not trained, with the reason.
        rungs: the rungs, from short to long.
        stop: spec of the validation images that stop trainings early.
        choosing: measurement that chooses.
        testing: measurement of the report.
        alphas: interpolations of every finalist with the start.
        soups: whether the finalists' soups are tried.
        seeds: seeds of the winner and of plain training in the report.
        slots: how many candidates are trained at once.
        lengths: length of every candidate in a rung, added when a rung begins and never changed.
        skipped: work that no longer fitted the budget, added when it was skipped.
        remarks: sentences for the reader.
    """

    request: Mapping[str, Any]
    start: str
    probe: bool
    candidates: Mapping[str, Mapping[str, Any]]
    costs: Mapping[str, TrainingCost]
    overhead: float
    choice: MeasuringCost
    report: MeasuringCost
    left_out: Mapping[str, str]
    rungs: tuple[Rung, ...]
    stop: str
    choosing: Step
    testing: Step
    alphas: tuple[float, ...]
    soups: bool
    seeds: int
    slots: int = 1
    lengths: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    version: int = VERSION

    @property
    def budget(self) -> float:
        """Wall time in seconds."""
        return float(self.request["budget"])

    @property
    def against(self) -> str:
        """What the model must hold against."""
        return str(self.request["against"])

    def candidate(self, name: str) -> Candidate:
        """A candidate by its name."""
        return Candidate(name, self.candidates[name])

    def write(self, folder: Path) -> None:
        """Write plan.json."""
        folder.mkdir(parents=True, exist_ok=True)
        atomic.write_text(folder / "plan.json", json.dumps(asdict(self), indent=1) + "\n")


def read_plan(path: Path) -> Plan:
    """Read a plan.json."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        known = {each.name for each in dataclasses.fields(Plan)}
        if values.get("version") != VERSION or set(values) != known:
            raise ValueError
        plan: Plan = from_json(values, Plan)
        _check_whole(plan)
        return plan
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise HoldfastError(f"{str(path)!r} cannot be read as a plan of this version; choose another --out") from error


def _check_whole(plan: Plan) -> None:
    """Raise ValueError for a plan whose parts do not belong together."""
    names, rungs = set(plan.candidates), range(len(plan.rungs))
    lengths = [set(length) & {"epochs", "steps"} for each in plan.lengths.values() for length in each.values()]
    costs = (plan.choice, plan.report)
    if not (
        PLAIN in names
        and names == set(plan.costs) == set(plan.lengths["0"])
        and all(int(number) in rungs and names.issuperset(each) for number, each in plan.lengths.items())
        and all(lengths)
        and all(cost.of(1) > 0 for cost in costs)
        and min(plan.budget, plan.seeds, plan.slots, plan.choosing.images, plan.testing.images) > 0
    ):
        raise ValueError


@dataclass(frozen=True)
class Room:
    """What the plan is made from.

    Attributes:
        budget: wall time in seconds.
        costs: training cost by candidate, the most promising first.
        overhead: seconds of a run besides its steps.
        choosing: cost of the measurement that chooses.
        testing: costs of the measurements that may be reported on, the fullest first, by their suites.
        counts: images that there are: ``choose``, ``test``.
        mixes: whether there is a start to interpolate with.
        seeds: seeds of the report.
        first: seconds of a linear probe before everything else.
        slots: how many candidates are trained at once.
    """

    budget: float
    costs: Mapping[str, TrainingCost]
    overhead: float
    choosing: MeasuringCost
    testing: Mapping[tuple[str, ...], MeasuringCost]
    counts: Mapping[str, int]
    mixes: bool
    seeds: int = 1
    first: float = 0.0
    slots: int = 1


@dataclass(frozen=True)
class Division:
    """A budget divided up."""

    names: tuple[str, ...]
    left_out: Mapping[str, str]
    rungs: tuple[Rung, ...]
    choose: int
    test: int
    suites: tuple[str, ...]
    alphas: tuple[float, ...]
    soups: bool


def divide(room: Room) -> Division:
    """Fill the budget: as many candidates as can be trained at all, then as many images as fit."""
    names, out = list(room.costs), dict[str, str]()
    while names:
        if (found := _division(room, names)) is not None:
            return replace(found, left_out=out)
        if len(names) == 2:
            break
        out[names[-1]] = "does not fit the budget"
        names.pop()
    raise HoldfastError(
        f"--budget must be at least about {human_seconds(_least(room))} for this model, these images and this machine, "
        f"got {human_seconds(room.budget)}"
    )


def _division(room: Room, names: Sequence[str]) -> Division | None:
    """The budget divided among these candidates; None if they do not fit."""
    whole = TARGET * room.budget - room.first
    models = 2 * room.seeds + room.mixes
    suites, test = _most_images(room.testing, TESTING * whole / models, room.counts["test"])
    if (found := _rungs(room, names, suites=suites, test=test, whole=whole)) is None:
        return None
    rungs, choose, alphas = found
    return Division(tuple(names), {}, rungs, choose, test, suites, alphas, room.mixes and len(alphas) > 2)


def _most_images(
    testing: Mapping[tuple[str, ...], MeasuringCost], seconds: float, there: int
) -> tuple[tuple[str, ...], int]:
    """The fullest measurement that all test images fit into, else the quickest on as many as fit."""
    for suites, cost in testing.items():
        if cost.of(there) <= seconds:
            return suites, there
    suites, cost = list(testing.items())[-1]
    return suites, min(there, int((seconds - cost.start) / cost.image))


def _rungs(
    room: Room, names: Sequence[str], *, suites: tuple[str, ...], test: int, whole: float
) -> tuple[tuple[Rung, ...], int, tuple[float, ...]] | None:
    """Rungs, images to choose by and interpolations; None if these candidates do not fit."""
    sizes = rung_sizes(len(names))
    least = min(LEAST, room.counts["choose"]), min(REPORTED, room.counts["test"])
    for alphas in (ALPHAS, FEW_ALPHAS) if room.mixes else ((1.0,),):
        extra = sizes[-1] * (len(alphas) - 1) + (len(alphas) > 2) * (2 + sizes[-1])
        measurements = sum(sizes) + extra
        choose = int((CHOOSING * whole / measurements - room.choosing.start) / room.choosing.image)
        if choose >= min(ENOUGH, room.counts["choose"]):
            break
    choose = min(choose, room.counts["choose"])
    if choose < least[0] or test < least[1]:
        return None
    spent = measurements * room.choosing.of(choose) + (2 * room.seeds + room.mixes) * room.testing[suites].of(test)
    training = whole - spent
    shares = len(sizes) + 2 * (room.seeds - 1) / sizes[-1]
    rungs = tuple(Rung(size, round(training / shares / turns(size, room.slots), 2)) for size in sizes)
    short = [name for name in names if _shortest(room.costs[name], room.overhead) > rungs[0].seconds]
    return None if short else (rungs, choose, alphas)


def turns(count: int, slots: int) -> int:
    """How many trainings follow one another where some run at once."""
    return -(-count // slots)


def _shortest(cost: TrainingCost, overhead: float) -> float:
    """Seconds of the shortest training that says something: an epoch, or some steps of a long one."""
    return overhead + cost.start + cost.epoch * min(1.0, LEAST_STEPS / cost.steps)


def _least(room: Room) -> float:
    """The smallest budget, to a tenth, that two candidates and the fewest images fit into."""
    names = list(room.costs)[:2]
    while _division(room, names) is None:
        room = replace(room, budget=1.1 * room.budget)
    return room.budget


def length_of(cost: TrainingCost, seconds: float, *, overhead: float, slower: float = 1.0) -> dict[str, float]:
    """Whole epochs that fit a time, or steps where not even two do; ``slower`` than the forecast."""
    epochs = max(seconds / slower - overhead - cost.start, 0.0) / cost.epoch
    if epochs >= 2:
        return {"epochs": int(epochs)}
    steps = max(1, int(epochs * cost.steps))
    if steps == cost.steps:
        return {"epochs": 1}
    return {"steps": steps, "whole": round(steps / cost.steps, 4)}


def with_lengths(plan: Plan, rung: int, names: Sequence[str], *, slower: float = 1.0) -> Plan:
    """The plan with the lengths of a rung, unless it has them already."""
    if str(rung) in plan.lengths:
        return plan
    seconds = plan.rungs[rung].seconds
    found = {name: length_of(plan.costs[name], seconds, overhead=plan.overhead, slower=slower) for name in names}
    return replace(plan, lengths={**plan.lengths, str(rung): found})


def described(plan: Plan) -> list[str]:
    """The plan as lines for the terminal."""
    rungs = ", then ".join(f"{rung.keep} for {human_seconds(rung.seconds)} each" for rung in plan.rungs)
    mixes = f"; interpolated with {plan.start or 'the start'} at {', '.join(f'{a:g}' for a in plan.alphas[:-1])}"
    bad = "attacks" if plan.against == ATTACKS else "corruptions that are not reported"
    lines = [
        f"{len(plan.candidates)} candidates: {', '.join(plan.candidates)}",
        f"  trained: {rungs}{mixes if len(plan.alphas) > 1 else ''}{' and averaged' if plan.soups else ''}",
        f"  chosen by: {plan.choosing.images} validation images, {bad} ({', '.join(plan.choosing.suites)})",
        f"  reported: {plan.testing.images} images of {plan.testing.data}, {', '.join(plan.testing.suites)}",
        *(f"  not {name}: {reason}" for name, reason in plan.left_out.items()),
        *(f"  {remark}" for remark in plan.remarks),
    ]
    return lines


def check_control(plan: Plan) -> None:
    """A plan without plain training has no control."""
    if PLAIN not in plan.candidates:
        raise HoldfastError(f"a plan must hold the candidate {PLAIN!r}, got {', '.join(plan.candidates)}")
