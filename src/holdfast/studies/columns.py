"""Columns of a study's table: scores of a run, computed from its stored quantities with their replicates."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from holdfast.analysis.registry import ANALYSES
from holdfast.benchmarks import Benchmark, ScoreText
from holdfast.cells import CellSpec
from holdfast.corruptions.c_bar_severities import C_BAR
from holdfast.corruptions.severities import SEVERITIES, table_group
from holdfast.metrics.intervals import Interval, Spread, over_seeds
from holdfast.metrics.jackknife import Groups, image_groups
from holdfast.metrics.replicates import Replicates, replicate
from holdfast.metrics.scoring.base import (
    CellScore,
    Key,
    MeasuredCells,
    ScoreDefinition,
    benchmark_scores,
    mean_score,
)
from holdfast.metrics.scoring.base import column as column_key
from holdfast.metrics.scoring.registry import scoring_of
from holdfast.studies.results import RunResult

RIGHT = "right"  # field that a study stores per image and cell
ANALYSED = "analysed"  # stands for a cell in the keys of measures


@dataclass(frozen=True)
class Column:
    """A column of the table: a score, or a measure of an analysis.

    Attributes:
        title: the heading.
        shows: the name of a score (`holdfast.metrics.scoring.base`) or of an analysis' measure per image.
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


COLUMNS: dict[str, Column] = {  # from evaluations; `columns` adds those of analyses
    "clean": Column("clean", "clean", "higher", "accuracy on clean test images, %"),
    "corrupted": Column("C", "measured_corruption_accuracy", "higher", "mean accuracy over the corruptions, %"),
    "c_bar": Column("C-bar", "mean_c_bar_accuracy", "higher", "mean accuracy over the ten kinds of C-bar, %"),
    "retention": Column("retention", "measured_retention", "higher", "what remains under corruption, C / clean, %"),
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


DOMAIN_COLUMNS: dict[str, Column] = {  # of test data in domains
    "domains": Column("mean domain", "mean_domain_accuracy", "higher", "mean accuracy over the domains, %"),
    "unseen_domains": Column(
        "unseen domains",
        "unseen_domain_accuracy",
        "higher",
        "mean accuracy over domains without training images, %",
    ),
    "domain_gap": Column(
        "domain gap", "domain_gap", "lower", "accuracy on the domains of training minus that on the others, points of %"
    ),
}


def columns(shifts: Iterable[str] = (), attacks: Iterable[str] = (), domains: Iterable[str] = ()) -> dict[str, Column]:
    """All columns: of evaluations, of a study's shifts, further attacks and domains, then of analyses."""
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
        | DOMAIN_COLUMNS
        | {name: Column(name.removeprefix("domain/"), name, "higher", f"accuracy in {name}, %") for name in domains}
        | {each.name: Column(each.title, each.name, each.better, each.says) for each in offered}
    )


@lru_cache(maxsize=256)
def run_replicates(run: RunResult) -> Replicates:
    """The quantities of a run: ``right`` or set scores of its cells, and the measures of its analyses."""
    images = max(map(len, run.right.values()), default=1)
    columns = {column_key(cell, RIGHT): values for cell, values in run.right.items()}
    for name, values in run.measures.items():
        columns[column_key(ANALYSED, name)] = np.broadcast_to(values, images) if len(values) == 1 else values
    found: dict[Key, NDArray[np.float64]] = {}
    for count in {len(values) for values in columns.values()}:  # analyses use fewer images than evaluations
        held = {key: np.asarray(values, np.float64) for key, values in columns.items() if len(values) == count}
        found |= replicate(held, groups_by_position(count)).arrays
    for quantity, rows in run.draws.items():
        for cell, row in zip(run.cells, rows, strict=True):
            found[column_key(cell.name, quantity)] = np.asarray(row[: _value_count(run, cell.name)], dtype=np.float64)
    return Replicates(found, None, columns)


def _value_count(run: RunResult, cell: str) -> int | None:
    """Number of values of a cell: other data have other groups, and shorter rows are padded."""
    counts = run.header.get("replicates")
    return None if counts is None else 1 + int(counts["shifts"].get(cell, counts["groups"]))


@lru_cache(maxsize=64)
def groups_by_position(images: int) -> Groups:
    """Jackknife groups by position: results do not store image names, but all runs share the order."""
    return image_groups([f"{place:09d}" for place in range(images)])


@lru_cache(maxsize=256)
def formulas(run: RunResult) -> dict[str, ScoreDefinition]:
    """Score definitions that a run allows, by name; corruption scores also over fewer cells than standard."""
    known = set(run_replicates(run))
    found: dict[str, ScoreDefinition] = {}
    for name in run.draws:
        found |= _set_scores(run, name)
    if run.right:
        found |= _corruption_scores(run, ACCURACY, mean="measured_corruption_accuracy", kept="measured_retention")
        every = scoring_of(run.task).formulas(run.cells, columns=known, header=run.header, reference=None)
        found |= {each.name: each for each in every if each.reads and known.issuperset(each.reads)}
    return found | {name: _measure(name) for name in run.measures}


def _measure(name: str) -> ScoreDefinition:
    key = column_key(ANALYSED, name)
    return ScoreDefinition(name, name, "", "high", "mean over the images", lambda found: found[key], reads=(key,))


def _set_scores(run: RunResult, name: str) -> dict[str, ScoreDefinition]:
    """Scores of a quantity of whole sets: clean, under corruption, retention, and of natural shifts."""
    measure = _quantity(name)
    found = _corruption_scores(run, measure, mean=f"{name}_c", kept=f"{name}_kept")
    for cell in run.cells:
        if cell.family in ("clean", "condition"):
            key = name if cell.family == "clean" else f"{name}_{cell.name}"
            found[key] = mean_score(measure, [cell.name], key, key, measure.label)
    return found


def _quantity(name: str) -> CellScore:
    return CellScore(name, name, name, lambda found, cell: found[column_key(cell, name)], quantities=(name,))


ACCURACY = _quantity(RIGHT)


def _corruption_scores(run: RunResult, measure: CellScore, *, mean: str, kept: str) -> dict[str, ScoreDefinition]:
    """Mean over the corruptions that were measured, and retention."""
    cells: dict[str, tuple[int, ...]] = {}
    for cell in _corrupted(run):
        cells[cell.kind] = (*cells.get(cell.kind, ()), cell.severity)
    texts = ScoreText(mean, mean, mean), ScoreText(kept, kept, kept)
    row = Benchmark("measured", run.task, cells, "the study", mean=texts[0], kept=texts[1])
    found = benchmark_scores(row, MeasuredCells(tuple(run.cells), measure, None))
    return {each.name: each for each in found}


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
    held = [set(formulas(run)) for runs in results.values() for run in runs]
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
    return float(replicates_of(column, run)[0])


def _measured_suites(results: Mapping[str, Sequence[RunResult]]) -> tuple[list[str], list[str], list[str]]:
    """Natural shifts, attacks and domains on which runs were evaluated."""
    cells = {cell.name: cell.family for runs in results.values() for run in runs for cell in run.cells}
    shifts, attacks = ([name for name in cells if cells[name] == family] for family in ("condition", "attack"))
    measures = [name for runs in results.values() for run in runs for name in run.measures]
    return shifts, attacks, [name for name in dict.fromkeys(measures) if name.startswith("domain/")]


def shared_seeds(runs: Sequence[RunResult], against: Sequence[RunResult]) -> list[int]:
    """Seeds that two rows have in common."""
    return sorted({run.seed for run in runs} & {run.seed for run in against})


def verdict(interval: Interval, expects: str) -> str:
    """Verdict of a difference on a claim: holds, does not hold, or not resolved."""
    if not interval.excludes_zero:
        return "not resolved"
    return "holds" if (interval.value > 0) == (expects == "higher") else "does not hold"


def replicates_of(column: Column, run: RunResult) -> NDArray[np.float64]:
    """A run's score and its replicates, (1 + groups,)."""
    return run_replicates(run).score(formulas(run)[column.shows])


def image_values(column: Column, run: RunResult) -> list[NDArray[np.float64]]:
    """Per-image values that a column is computed from; none for scores of whole sets."""
    columns = run_replicates(run).columns
    return [columns[key] for key in formulas(run)[column.shows].reads if key in columns]
