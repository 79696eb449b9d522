"""Evaluation and analysis of one trained run of a study."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.analysis.analyze import analyze
from holdfast.analysis.registry import ANALYSES
from holdfast.analysis.results import AnalysisResult
from holdfast.analysis.settings import Settings
from holdfast.cells import CellSpec
from holdfast.corruptions.c_bar_severities import C_BAR
from holdfast.corruptions.severities import table_group
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import ComputeConfig, EvalProtocol
from holdfast.evaluation.evaluate import evaluate
from holdfast.metrics.intervals import Estimate, jackknife_estimate
from holdfast.metrics.jackknife import GROUPINGS, image_groups
from holdfast.metrics.replicates import Replicates, replicate_cells, used_images
from holdfast.metrics.scoring.base import CellScore
from holdfast.metrics.scoring.registry import scoring_of
from holdfast.records.records import Records
from holdfast.studies.config import Study
from holdfast.studies.results import RunResult
from holdfast.training.logger import read_log
from holdfast.training.recipe import Recipe

FILM = "camvid:"  # video data, whose frames were drawn in blocks
BLOCK = max(grouping.block for grouping in GROUPINGS)


def has_draws_only(result: RunResult) -> bool:
    """Whether a result holds bootstrap draws of an earlier version instead of jackknife replicates."""
    return bool(result.draws) and "replicates" not in result.header


def set_estimate(name: str, apart: NDArray[np.float64], run: RunResult) -> Estimate:
    """Difference of set scores with its standard error, from (1 + groups) replicates or (1 + draws).

    For draws the error is their standard deviation. Its degrees of freedom are the number of drawn images, or blocks of
    frames, which may be fewer than the draws.
    """
    if not has_draws_only(run):
        return jackknife_estimate(apart)
    images = int(run.header.get("measured_images", 0))
    shift = next((size for other, size in run.header.get("shifts", {}).items() if name.endswith(f"_{other}")), images)
    independent = shift // BLOCK if str(run.header.get("test", "")).startswith(FILM) else shift
    drawn = apart[1:]
    error = float(np.std(drawn, ddof=1)) if len(drawn) > 1 else float("nan")
    return Estimate(float(apart[0]), error, max(0, min(independent, len(drawn)) - 1))


ANALYSED = 256  # images per analysis: enough for a mean, and attention maps are slow
SETTINGS = Settings(masks=4, occlusion_images=ANALYSED)

# logged values that a study stores, if present
TRACED = (
    "cross_entropy",
    "loss_classifier",
    "loss_mask",
    "grad_norm",
    "alignment",
    "selection_change",
    "corruptor_grad_norm",
    "adl_active_rows",
    "adversarial_cross_entropy",
    "clean_cross_entropy",
)


@dataclass(frozen=True)
class RunMeasurements:
    """Measurements of one run: the fields of a `holdfast.studies.results.RunResult`."""

    right: Mapping[str, np.ndarray]
    measures: Mapping[str, np.ndarray]
    facts: Mapping[str, Any]
    draws: Mapping[str, np.ndarray] = field(default_factory=dict)
    figures: Mapping[str, np.ndarray] = field(default_factory=dict)


def compute_of(recipe: Recipe) -> ComputeConfig:
    """Compute settings of a run: half precision if its recipe uses it; ``auto`` is single precision everywhere."""
    return ComputeConfig(amp=recipe.train.precision in ("bf16", "fp16"))


def measure(study: Study, folder: Path, recipe: Recipe, *, show: bool = False) -> RunMeasurements:
    """Evaluate and analyse one run: scores per image, or set scores with replicates, and header fields."""
    spec = f"run:{folder}"
    protocol = EvalProtocol(preparation=study.preparation)
    options: dict[str, Any] = {"workers": 0, "show": show, "protocol": protocol, "compute": compute_of(recipe)}
    records = evaluate(spec, study.test, study.suites, limit=study.limit, **options)
    shifted = {name: evaluate(spec, data, "clean", **options) for name, data in study.shifts.items()}
    whole_sets = scoring_of(records.task).whole_sets
    if not whole_sets and shifted:
        raise HoldfastError(f"shifts of a study are for segmentation and detection, got a test set of {records.task}")
    right = {} if whole_sets else {name: cell.right for name, cell in records.cells.items()}
    limit = min(study.limit or ANALYSED, ANALYSED)
    analysed: Mapping[str, AnalysisResult] = {}
    if study.analyses:
        options = {"settings": SETTINGS, "limit": limit, "protocol": protocol, "show": show}
        analysed = analyze(spec, study.test, study.analyses, **options).results
    measures = {
        column.name: column.per_image(found) for name, found in analysed.items() for column in ANALYSES[name].columns
    }
    if not whole_sets:
        measures |= of_other_views(records) | of_domains(records)
    header_keys = ("preset", "frost", "versions", "data_fingerprint", "seed", "amp")
    facts = {
        "evaluation": {name: records.header[name] for name in header_keys},
        "analysed": limit,
        "task": records.task,
    }
    facts["cells"] = {name: cell.spec.plain() for name, cell in records.cells.items()}
    facts["revisions"] = {
        name: cell.header["revision"] for name, cell in records.cells.items() if "revision" in cell.header
    }
    if not whole_sets:
        return RunMeasurements(right, measures, facts)
    draws, figures = _set_scores(records)
    groups = {"": _groups(draws)}
    for name, other in shifted.items():
        more, further = _set_scores(other)
        groups[name] = _groups(more)
        draws, figures = _with_shift(draws, more), _concatenate(figures, further)
        facts["cells"][name] = CellSpec(name, "condition", name).plain()
    order = [*records.cells, *shifted]
    facts |= {"cell_order": order, "measured_images": _images(records)}
    facts["replicates"] = {"groups": groups.pop(""), "shifts": groups}  # "draws" hold jackknife replicates
    facts["shifts"] = {name: _images(other) for name, other in shifted.items()}
    return RunMeasurements(right, measures, facts, draws, figures)


def of_other_views(records: Records) -> dict[str, np.ndarray]:
    """Correctness per image of a model's further views: ``view/clean``, ``view/corrupted``, ``view/ATTACK``, (N,)."""
    found: dict[str, np.ndarray] = {}
    for view in records.views[1:]:
        by_score: dict[str, list[np.ndarray]] = {}
        for name, cell in records.by_view[view].items():
            by_score.setdefault(_group_of(cell.spec) or name, []).append(cell.right)
        found |= {f"{view}/{name}": np.mean(rights, axis=0) for name, rights in by_score.items()}
    return found


def of_domains(records: Records) -> dict[str, np.ndarray]:
    """Per-image values whose mean is a score of domains in percent: each domain's own, the mean, the gap.

    A mean over domains weights every image by its domain's share, so it is a mean over images like all measures.
    """
    rights = {name: cell.right for name, cell in records.domains.items() if len(cell)}
    trained = [name for name in records.header.get("train_domains") or () if name in rights]
    unseen = [name for name in rights if name not in trained]
    weights = {"mean_domain_accuracy": dict.fromkeys(rights, 1 / max(1, len(rights)))}
    if trained and unseen:
        weights["unseen_domain_accuracy"] = dict.fromkeys(unseen, 1 / len(unseen))
        weights["domain_gap"] = dict.fromkeys(trained, 1 / len(trained)) | dict.fromkeys(unseen, -1 / len(unseen))
    images = sum(map(len, rights.values()))

    def weighted(shares: Mapping[str, float]) -> np.ndarray:
        return np.concatenate([images * shares.get(name, 0.0) / len(each) * each for name, each in rights.items()])

    found = {f"domain/{name}": 100 * each for name, each in rights.items()}
    return found | ({name: 100 * weighted(shares) for name, shares in weights.items()} if rights else {})


def _group_of(cell: CellSpec) -> str:
    if cell.family != "corruption":
        return ""
    return "c_bar" if table_group(cell.kind) == C_BAR else "corrupted"


Arrays = Mapping[str, np.ndarray]


def _set_scores(records: Records) -> tuple[Arrays, Arrays]:
    """Scores of every cell with their replicates, (cells, 1 + groups), and the task's further values."""
    scoring = scoring_of(records.task)
    used = used_images(records.cells)
    replicates = replicate_cells(records.cells, used, image_groups(used.ids))
    known = {
        name: score for name, score in scoring.cell_scores(records.header).items() if _has(replicates, score, records)
    }
    rows = {name: np.stack([score.of(replicates, cell) for cell in records.cells]) for name, score in known.items()}
    return rows, scoring.set_figures(records.cells)


def _has(replicates: Replicates, score: CellScore, records: Records) -> bool:
    return replicates.keys() >= set(score.reads(*records.cells))


def _with_shift(draws: Arrays, more: Arrays) -> Arrays:
    """Append a row for the clean images of other data, which have their own groups; pad with NaN."""
    width = 1 + max(_groups(draws), _groups(more))
    return _concatenate(_pad_to(draws, width), _pad_to(more, width))


def _pad_to(draws: Arrays, width: int) -> Arrays:
    missing = ((0, 0), (0, width - 1 - _groups(draws)))
    return {name: np.pad(rows, missing, constant_values=np.nan) for name, rows in draws.items()}


def _concatenate(first: Arrays, second: Arrays) -> Arrays:
    return {name: np.concatenate([first[name], second[name]]) for name in first}


def _groups(draws: Arrays) -> int:
    return int(next(iter(draws.values())).shape[1]) - 1


def _images(records: Records) -> int:
    return len(next(iter(records.cells.values())))


def traces(folder: Path) -> dict[str, np.ndarray]:
    """Logged values over training steps, (T, 2) by name, which show whether a method was active."""
    steps = [line for line in read_log(folder / "log.jsonl") if line["event"] == "step"]
    found = {name: [(line["step"], line[name]) for line in steps if name in line] for name in TRACED}
    return {name: np.array(points, dtype=np.float64) for name, points in found.items() if points}
