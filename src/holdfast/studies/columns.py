"""Columns of a study's table as functions of means over images, so that one jackknife serves all of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from holdfast.analysis.registry import ANALYSES
from holdfast.corruptions.c_bar_severities import C_BAR
from holdfast.corruptions.severities import SEVERITIES, table_group
from holdfast.metrics.corruption import Values, mean_of, retention
from holdfast.metrics.intervals import Interval, Spread, over_seeds
from holdfast.metrics.scoring.base import Compute, Means, ScoreDefinition
from holdfast.metrics.scoring.base import column as column_key
from holdfast.records.cells import CellSpec
from holdfast.studies.measure_run import set_scores
from holdfast.studies.results import RunResult
from holdfast.tasks import task_named

RIGHT = "right"  # field that a study stores per image and cell


@dataclass(frozen=True)
class Column:
    """A column of the table: a score, or a measure of an analysis.

    Attributes:
        title: the heading.
        shows: the name of a score (:mod:`holdfast.metrics.scoring.base`) or of an analysis' measure per image.
        better: ``higher`` or ``lower``.
        says: its definition in one line.
    """

    title: str
    shows: str
    better: str
    says: str

    @property
    def in_percent(self) -> bool:
        """Whether values are in percent; those of attention lie between 0 and 1."""
        return self.says.endswith("%")


COLUMNS: dict[str, Column] = {  # from evaluations; :func:`columns` adds those of analyses
    "clean": Column("clean", "clean", "higher", "accuracy on clean test images, %"),
    "corrupted": Column("C", "mean_corruption_accuracy", "higher", "mean accuracy over the corruptions, %"),
    "c_bar": Column("C-bar", "mean_c_bar_accuracy", "higher", "mean accuracy over the ten kinds of C-bar, %"),
    "retention": Column("retention", "retention", "higher", "what remains under corruption, C / clean, %"),
    "occluded": Column(
        "occluded",
        "attack/occlusion-random",
        "higher",
        "accuracy with a random tenth of the patches covered, mean over the masks, %",
    ),
    "pgd5": Column("PGD-5", "attack/pgd5", "higher", "accuracy under PGD, ε 1/255, 5 steps, %"),
    "pgd3_adv": Column("PGD 4/255", "attack/pgd3-rvt-adv", "higher", "accuracy under PGD, ε 4/255, 3 steps, %"),
}
_OF_SETS = {"box_ap": ("box AP", "box mPC", "box rPC"), "mask_ap": ("mask AP", "mask mPC", "mask rPC")}
_OF_SETS |= {"miou": ("mIoU", "mIoU-C", "mIoU retention")}
SET_COLUMNS: dict[str, Column] = {  # for detection and segmentation
    f"{name}{suffix}": Column(title, f"{name}{suffix}", "higher", says.format(titles[0]))
    for name, titles in _OF_SETS.items()
    for suffix, title, says in zip(
        ("", "_c", "_kept"),
        titles,
        ("{} of clean test images, %", "{}, mean over the corruptions, %", "{} under corruption by that of clean, %"),
        strict=True,
    )
}


def columns(shifts: Iterable[str] = (), attacks: Iterable[str] = ()) -> dict[str, Column]:
    """All columns: of evaluations, of a study's natural shifts and further attacks, then of analyses."""
    offered = [column for analysis in ANALYSES.values() for column in analysis.columns]
    natural = {
        f"{name}_{shift}": Column(f"{titles[0]} {shift}", f"{name}_{shift}", "higher", f"{titles[0]} on {shift}, %")
        for name, titles in _OF_SETS.items()
        for shift in shifts
    }
    shown = {column.shows for column in COLUMNS.values()}
    others = {
        name: Column(name, f"attack/{name}", "higher", f"accuracy under {name}, %")
        for name in attacks
        if f"attack/{name}" not in shown
    }
    return (
        COLUMNS
        | others
        | SET_COLUMNS
        | natural
        | {each.name: Column(each.title, each.name, each.better, each.says) for each in offered}
    )


@lru_cache(maxsize=256)
def formulas(result: RunResult) -> dict[str, ScoreDefinition]:
    """Score definitions that a run's cells allow, by name; corruption scores also over fewer cells than standard."""
    task = task_named(result.task)
    keys = [column_key(name, RIGHT) for name in result.right]
    known = task.formulas(result.cells, columns=keys, header=result.header, reference=None)
    # scores of whole sets (AP, mIoU) have no values per image
    computable = [each for each in known if each.cells and result.right.keys() >= set(each.cells)]
    return _over_fewer_cells(result) | {each.name: each for each in computable}


def _over_fewer_cells(result: RunResult) -> dict[str, ScoreDefinition]:
    corrupted = tuple(cell.name for cell in _corrupted(result) if cell.name in result.right)
    clean = next((cell.name for cell in result.cells if cell.family == "clean"), None)
    if not corrupted:
        return {}

    def mean(means: Means) -> Values:
        return mean_of([means[column_key(cell, RIGHT)] for cell in corrupted])

    name, text = "mean_corruption_accuracy", f"mean accuracy over {_which(result)}"
    found = {name: ScoreDefinition(name, "C", "%", "high", text, lambda m: 100 * mean(m), cells=corrupted)}
    if clean is not None:
        compute: Compute = lambda m: retention(mean(m), m[column_key(clean, RIGHT)])  # noqa: E731
        both = (clean, *corrupted)
        found["retention"] = ScoreDefinition("retention", "retention", "%", "high", "C / clean", compute, cells=both)
    return found


def _corrupted(result: RunResult) -> list[CellSpec]:
    """The cells of C; C-bar is a column of its own."""
    return [cell for cell in result.cells if cell.family == "corruption" and table_group(cell.kind) != C_BAR]


def _which(result: RunResult) -> str:
    cells = _corrupted(result)
    kinds, severities = {cell.kind for cell in cells}, sorted({cell.severity for cell in cells})
    if len(cells) == len(kinds) * len(SEVERITIES):
        return f"{len(kinds)} corruptions × {len(SEVERITIES)} severities"
    return f"{len(kinds)} corruptions at severity {', '.join(map(str, severities))}"


def available(results: Mapping[str, Sequence[RunResult]]) -> dict[str, Column]:
    """The columns that are available for every run of every row."""
    held = [{*formulas(run), *run.measures, *set_scores(run)} for runs in results.values() for run in runs]
    common = set.intersection(*held) if held else set()
    found = {name: column for name, column in columns(*_measured_suites(results)).items() if column.shows in common}
    if "corrupted" in found:
        cells = " or ".join(dict.fromkeys(_which(run) for runs in results.values() for run in runs))
        found["corrupted"] = replace(found["corrupted"], says=f"mean accuracy over {cells}, %")
    for name in found.keys() & {name for name in SET_COLUMNS if name.endswith("_c")}:
        over = " or ".join(dict.fromkeys(_which(run) for runs in results.values() for run in runs))
        found[name] = replace(found[name], says=f"{found[name.removesuffix('_c')].title}, mean over {over}, %")
    return found


def scores(column: Column, runs: Sequence[RunResult]) -> Spread:
    """Mean and standard deviation of a column over the seeds of a row; NaN if undefined."""
    values = [run_score(column, run) for run in runs]
    if not np.isfinite(values).all():
        return Spread(float("nan"), float("nan"), len(values))
    return over_seeds(values)


def run_score(column: Column, run: RunResult) -> float:
    """Value of a column for one run; NaN if undefined."""
    of_set = set_scores(run).get(column.shows)
    return float(statistics(column, run)(_means(run, column))) if of_set is None else float(of_set[0])


def _measured_suites(results: Mapping[str, Sequence[RunResult]]) -> tuple[list[str], list[str]]:
    """Natural shifts and attacks on which runs were evaluated."""
    cells = {cell.name: cell.family for runs in results.values() for run in runs for cell in run.cells}
    shifts, attacks = ([name for name in cells if cells[name] == family] for family in ("condition", "attack"))
    return shifts, attacks


def shared_seeds(runs: Sequence[RunResult], against: Sequence[RunResult]) -> list[int]:
    """Seeds that two rows have in common."""
    return sorted({run.seed for run in runs} & {run.seed for run in against})


def verdict(interval: Interval, expects: str) -> str:
    """Verdict of a difference on a claim: holds, does not hold, or not resolved."""
    if not interval.excludes_zero:
        return "not resolved"
    return "holds" if (interval.value > 0) == (expects == "higher") else "does not hold"


def statistics(column: Column, run: RunResult) -> Callable[[np.ndarray], np.ndarray]:
    """Function that computes a column from the means of its :func:`ingredients`, (…, ingredients) → (…)."""
    formula = formulas(run).get(column.shows)
    if formula is None:
        return lambda means: means[..., 0]
    keys = [column_key(cell, RIGHT) for cell in formula.cells]
    return lambda means: np.asarray(formula.compute({key: means[..., place] for place, key in enumerate(keys)}))


def _means(run: RunResult, column: Column) -> np.ndarray:
    return np.array([np.ascontiguousarray(values).mean() for values in ingredients(run, column).T], dtype=np.float64)


def ingredients(run: RunResult, column: Column) -> np.ndarray:
    """Matrix of images × ingredients: the cells of a score, or an analysis' measure per image."""
    formula = formulas(run).get(column.shows)
    if formula is not None:
        return np.stack([run.right[cell] for cell in formula.cells], axis=1)
    images = max(map(len, run.right.values()), default=1)
    values = run.measures[column.shows]
    return np.broadcast_to(values, images)[:, None] if len(values) == 1 else values[:, None]
