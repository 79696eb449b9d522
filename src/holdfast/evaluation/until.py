"""``Until``: how precise an evaluation must be before it stops, or how much it may cost."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from holdfast.cells import CLEAN, CellSpec
from holdfast.errors import HoldfastError, nearest
from holdfast.metrics.replicates import replicate_cells, used_images
from holdfast.metrics.score_lookup import DIVIDED, key_of, why_not
from holdfast.metrics.scoring.base import ScoreDefinition
from holdfast.metrics.summary import formulas_of, reference_for, score_of
from holdfast.records.records import Records
from holdfast.runtime.duration import parse_duration
from holdfast.tasks import task_named
from holdfast.tasks.base import Task

HEADLINE = ""  # name of the goal that is given without one
# standard deviations of an image's score, for the forecast before anything is measured: in one cell at 80 %, and of its
# mean over cells, which is 0.29 to 0.41 in the stored answers of our studies on CIFAR-10 and Imagenette
DEVIATION, DEVIATION_OF_MEANS = 0.4, 0.3
OF_BASELINE = 1.4  # points of an error in percent of AlexNet's for a point of the error


@dataclass(frozen=True)
class Until:
    """When an evaluation stops.

    Attributes:
        precision: half-width of the 95 % interval, in points: a number for the headline score, ``mce=1,fog=2`` or a
            mapping for scores by name. None stops by ``budget`` only.
        budget: ``10m``, ``1h30m`` for this call, or a number of passes (one image in one cell) of the records.
        of_these_images: intervals of the score of exactly these images, instead of new ones like them.
    """

    precision: float | str | Mapping[str, float] | None = None
    budget: int | str | None = None
    of_these_images: bool = False
    goals: Mapping[str, float] = field(init=False, repr=False)
    passes: int | None = field(init=False, repr=False)
    seconds: float | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.precision is None and self.budget is None:
            raise HoldfastError("until must have a precision or a budget, as in Until(0.5) or Until(budget='10m')")
        if self.of_these_images and self.precision is None:
            raise HoldfastError("of_these_images needs a precision, such as until=0.5")
        goals = {} if self.precision is None else _goals(self.precision)
        passes, seconds = (None, None) if self.budget is None else _budget(self.budget)
        for name, value in (("goals", goals), ("passes", passes), ("seconds", seconds)):
            object.__setattr__(self, name, value)

    @property
    def named(self) -> bool:
        """Whether it names scores, rather than the headline score alone."""
        return any(name != HEADLINE for name in self.goals)

    @classmethod
    def of(cls, given: "Until | float | str | Mapping[str, float]") -> "Until":
        """What ``holdfast.evaluate`` takes as ``until``."""
        return given if isinstance(given, Until) else cls(given)


@dataclass(frozen=True)
class Goal:
    """A score and the half-width that its interval is to have.

    Attributes:
        formula: the score.
        width: the half-width in points; 0 if only the budget ends the evaluation.
        cells: cells that it is computed from.
        common: whether it is the headline score, for which all cells of its suites are measured equally often.
    """

    formula: ScoreDefinition
    width: float
    cells: tuple[str, ...]
    common: bool = False

    @property
    def name(self) -> str:
        """Name of the score."""
        return self.formula.name


@dataclass(frozen=True)
class Estimate:
    """A goal's score so far: its value and the half-width of its interval; NaN if it has none yet."""

    goal: Goal
    value: float
    half_width: float

    @property
    def reached(self) -> bool:
        """Whether the interval is as narrow as asked for."""
        return self.half_width <= self.goal.width

    def __str__(self) -> str:
        wanted = f" (goal {self.goal.width:g})" if self.goal.width else ""
        return f"{self.goal.formula.label} {self.value:.2f} ± {self.half_width:.2f}{wanted}"


def resolve_goals(
    until: Until, formulas: Sequence[ScoreDefinition], *, task: Task, header: Mapping[str, Any]
) -> list[Goal]:
    """Find the scores of the goals among those that the cells allow; an unknown one is an error."""
    known = {formula.name: formula for formula in formulas}
    found = []
    for name, width in (until.goals or {HEADLINE: 0.0}).items():
        formula = known[_headline(known, task)] if name == HEADLINE else known[_named(name, known, header)]
        cells = tuple(dict.fromkeys([cell for cell, _ in formula.reads] or formula.cells))
        found.append(Goal(formula, width, cells, common=name == HEADLINE))
    return found


def foreseen_formulas(task: Task, cells: Sequence[CellSpec], header: Mapping[str, Any]) -> list[ScoreDefinition]:
    """The scores that records of these cells will have, before there are any."""
    columns = task.scoring.foreseen_columns(cells)
    reference = reference_for(Records.of(header, {}), None)
    return task.scoring.formulas(cells, columns=columns, header=header, reference=reference)


def judge(records: Records, goals: Sequence[Goal], *, of_these_images: bool = False) -> list[Estimate]:
    """Estimate the goals' scores from what was measured so far."""
    cells = {name: cell for name, cell in records.cells.items() if len(cell)}
    if not cells:
        return [Estimate(goal, math.nan, math.nan) for goal in goals]
    used = used_images(cells, images="own")
    replicates = replicate_cells(cells, used, used.groups())
    found = formulas_of(records, cells, replicates, reference=reference_for(records, None))
    known = {formula.name: formula for formula in found}
    estimates = []
    for goal in goals:
        if goal.name not in known or not all(cell in cells for cell in goal.cells):
            estimates.append(Estimate(goal, math.nan, math.nan))
            continue
        score = score_of(known[goal.name], replicates, cells)
        half = (score.high - score.low) / 2
        if of_these_images:
            images = max(1, int(records.header.get("images", 0)) - len(records.excluded))
            used_share = min(len(cells[cell]) for cell in goal.cells) / images
            half *= math.sqrt(max(0.0, 1 - used_share))  # finite-population correction (Cochran 1977, section 2.6)
        estimates.append(Estimate(goal, score.value, half))
    return estimates


def estimates_of(records: Records, until: Until) -> list[Estimate]:
    """Estimates of the goals' scores, from records."""
    specs = [cell.spec for cell in records.cells.values()]
    task = task_named(records.task)
    goals = resolve_goals(until, foreseen_formulas(task, specs, records.header), task=task, header=records.header)
    return judge(records, goals, of_these_images=until.of_these_images)


def _headline(known: Mapping[str, ScoreDefinition], task: Task) -> str:
    """The task's score over corruptions, else the clean score, else the first one."""
    clean = {name for name, formula in known.items() if CLEAN.name in {cell for cell, _ in formula.reads}}
    shown = task.scoring.headline
    corrupted = [name for name in (*shown, *(f"{name}_partial" for name in shown)) if name not in clean]
    found = next((name for name in (*corrupted, "clean", *known) if name in known), None)
    if found is None:
        raise HoldfastError("until needs a score, but these suites have none")
    return found


def _named(name: str, known: Mapping[str, ScoreDefinition], header: Mapping[str, Any]) -> str:
    labels = {key: formula.label for key, formula in known.items()}
    for candidate in (name, f"{name}_partial"):
        if candidate in known:
            return candidate
        if (key := key_of(candidate, labels)) is not None:
            return key
    near = nearest(name, [*known]) or f"; there are {', '.join(known)}"
    why = why_not(name, known, header) if name.lower() in DIVIDED else near
    raise HoldfastError(f"until must name scores of these suites and data, got {name!r}{why}")


def _goals(given: float | str | Mapping[str, float]) -> dict[str, float]:
    if isinstance(given, Mapping):
        return {str(name): _width(value, str(name)) for name, value in given.items()} or _bad(given)
    if not isinstance(given, str):
        return {HEADLINE: _width(given, "until")}
    goals: dict[str, float] = {}
    for part in given.split(","):
        name, equals, value = part.rpartition("=")
        name = name.strip()
        if (equals and not name) or name in goals:
            _bad(given)
        goals[name] = _width(value.strip(), name or "until")
    return goals


def _width(value: Any, name: str) -> float:
    try:
        width = float(value)
    except (TypeError, ValueError):
        width = math.nan
    if isinstance(value, bool) or not (0 < width < math.inf):
        raise HoldfastError(
            f"until must give points above 0, as 0.5 or mce=1,fog=2, got {value!r}"
            + (f" for {name}" if name != "until" else "")
        )
    return width


def _bad(given: Any) -> Any:
    raise HoldfastError(f"until must be points, or scores with points as in mce=1,fog=2, got {given!r}")


def _budget(given: int | str) -> tuple[int | None, float | None]:
    """Passes or seconds."""
    text = str(given).strip().replace(",", "").replace("_", "")
    if text.isdecimal() and int(text) > 0 and not isinstance(given, bool):
        return int(text), None
    if (seconds := parse_duration(text)) is not None:
        return None, seconds
    raise HoldfastError(f"budget must be a time such as 10m or 1h30m, or a number of passes above 0, got {given!r}")


def typical_half_width(goal: Goal, images: int) -> float | None:
    """About the half-width that all passes of so many images reach; None for scores that are not in percent."""
    if not goal.formula.unit.startswith("%") or goal.formula.scale == "ratio" or not images:
        return None
    points = 196 * (DEVIATION_OF_MEANS if len(goal.cells) > 1 else DEVIATION) / math.sqrt(images)
    return points if goal.formula.unit == "%" else OF_BASELINE * points


def images_needed(estimate: Estimate, images: int) -> float:
    """About how many images per cell the goal needs, as the half-width falls with the root of their number."""
    if not estimate.goal.width or not np.isfinite(estimate.half_width):
        return math.inf
    return images * (estimate.half_width / estimate.goal.width) ** 2
