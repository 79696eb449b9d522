"""Accuracy–robustness trade-off of TORA runs: λ × predictions, and tuning methods × λ.

The tables follow the second and third table of the slides (Li and Xu, CVPR 2023). Runs of one method and λ (seeds) are
averaged, with minimum and maximum in brackets.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.metrics.summary import Score, summarise
from holdfast.reporting.quantities import is_headline
from holdfast.reporting.runs import Run, read_runs
from holdfast.reporting.sections.section import Section
from holdfast.reporting.table import Cell, Column, Row, Table

DESCRIPTION = "tora.json"
VIEWS = ("acc", "rob", "joint")  # in the slides' order
METHODS = ("head-only", "single-adapter", "adapter-fusion", "tora")
TEXT = "TORA's adapted models by λ, the weight of robustness: mean over seeds, with minimum and maximum."


@dataclass(frozen=True, eq=False)
class TradeOffRun:
    """A finished phase-2 run: files, tuning method, λ and metadata."""

    run: Run
    method: str
    weight: float
    description: Mapping[str, Any]

    @cached_property
    def scores(self) -> Mapping[str, Mapping[str, Score]]:
        """The headline scores of every prediction, over all data sets that the run was evaluated on."""
        found: dict[str, dict[str, Score]] = {}
        for records in self.run.records:
            for view in records.views:
                summary = summarise(records.view(view), intervals=False)
                found.setdefault(view, {}).update({s.name: s for s in summary if is_headline(s, records.task)})
        return found

    @property
    def hours(self) -> float | None:
        """Hours of training steps including phase 1, without evaluation and start-up."""
        parts = [_hours(run) for run in _with_phase1(self.run)]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None


def trade_off_section(runs: Sequence[Run]) -> Section:
    """Build both tables from the TORA runs with records."""
    held = [run for run in trade_off_runs(runs) if run.scores]
    tables = [table for table in (heads_table(held), methods_table(held)) if table.rows]
    return Section("trade-off", "TORA: accuracy–robustness trade-off", TEXT, tables=tables)


def trade_off_runs(runs: Iterable[Run]) -> list[TradeOffRun]:
    """Select the finished phase-2 runs of a single λ, sorted by method and λ."""
    found = []
    for run in runs:
        description = _description(run)
        notes, settings = _as_mapping(description.get("notes")), _as_mapping(description.get("settings"))
        method, weights = settings.get("method"), notes.get("lambdas")
        if notes.get("phase") == "joint" and method in METHODS and isinstance(weights, list) and len(weights) == 1:
            found.append(TradeOffRun(run, str(method), float(weights[0]), description))
    return sorted(found, key=lambda run: (METHODS.index(run.method), run.weight))


def heads_table(runs: Sequence[TradeOffRun], *, method: str = "tora") -> Table:
    """λ × the three predictions (the slides' second table)."""
    runs = [run for run in runs if run.method == method]
    names = _score_names(runs)
    rows = [
        Row(f"λ {weight:g}, {view}", [_mean(group, view, name) for name in names])
        for weight, group in _groups(runs)
        for view in VIEWS
        if any(view in run.scores for run in group)
    ]
    return Table(f"{method}: predictions", _columns(runs, names), rows, head="λ, prediction")


def methods_table(runs: Sequence[TradeOffRun]) -> Table:
    """Tuning methods × λ with parameters, GMACs and hours, joint prediction (the slides' third table)."""
    names = _score_names(runs)
    costs = (Column("GMACs"), Column("params", unit="M"), Column("hours"))
    rows = []
    for weight in sorted({run.weight for run in runs}):
        for method in METHODS:
            group = [run for run in runs if (run.method, run.weight) == (method, weight)]
            if group:
                values = [*_costs(group), *(_mean(group, "joint", name) for name in names)]
                rows.append(Row(f"λ {weight:g}, {method}", values))
    return Table("tuning methods", (*costs, *_columns(runs, names)), rows, head="λ, method")


def trade_off_curve(runs: Sequence[TradeOffRun], *, robust: str) -> list[dict[str, Any]]:
    """The curve as points: one per run and prediction, with its λ, clean accuracy and the score named ``robust``."""
    points = []
    for run in runs:
        for view, scores in run.scores.items():
            if "clean" in scores and robust in scores:
                point = {"method": run.method, "lambda": run.weight, "view": view, "folder": str(run.run.folder)}
                points.append(point | {"clean": scores["clean"].value, "robust": scores[robust].value})
    return points


def _groups(runs: Sequence[TradeOffRun]) -> list[tuple[float, list[TradeOffRun]]]:
    weights = sorted({run.weight for run in runs})
    return [(weight, [run for run in runs if run.weight == weight]) for weight in weights]


def _score_names(runs: Sequence[TradeOffRun]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for scores in run.scores.values() for name in scores))


def _columns(runs: Sequence[TradeOffRun], names: Sequence[str]) -> list[Column]:
    known = {name: score for run in runs for scores in run.scores.values() for name, score in scores.items()}
    return [Column(known[name].label, unit=known[name].unit) for name in names]


def _mean(group: Sequence[TradeOffRun], view: str, name: str) -> Cell | None:
    return _value([run.scores[view][name].value for run in group if name in run.scores.get(view, {})])


def _value(values: Sequence[float]) -> Cell | None:
    if not values:
        return None
    return Cell(fmean(values), min(values), max(values)) if len(values) > 1 else Cell(values[0])


def _costs(group: Sequence[TradeOffRun]) -> list[Cell | None]:
    cost = _as_mapping(group[0].description.get("cost"))
    hours = [run.hours for run in group if run.hours is not None]
    return [
        Cell(cost["gmacs"]) if "gmacs" in cost else None,
        Cell(cost["parameters"] / 1e6) if "parameters" in cost else None,
        Cell(fmean(hours)) if hours else None,
    ]


def _description(run: Run) -> Mapping[str, Any]:
    path = run.folder / DESCRIPTION if run.folder is not None else None
    try:
        read = json.loads(path.read_text(encoding="utf-8")) if path is not None and path.is_file() else {}
    except (OSError, ValueError):
        return {}
    return _as_mapping(read)


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _start(run: Run) -> str | None:
    """The run from whose adapters this one was initialised."""
    return _as_mapping(_as_mapping(run.recipe.get("model")).get("adapt")).get("start")


def _with_phase1(run: Run) -> list[Run | None]:
    """The run and its predecessors; None for one whose files are missing."""
    chain: list[Run | None] = [run]
    while (start := _start(run)) is not None and len(chain) < 5:
        try:
            run = read_runs([Path(start)])[0]
        except HoldfastError:
            return [*chain, None]
        chain.append(run)
    return chain


def _hours(run: Run | None) -> float | None:
    """Compute hours from the log, whose lines contain images per second."""
    if run is None or not run.log:
        return None
    try:
        processes = next((entry["processes"] for entry in run.log if entry["event"] == "end"), 1)
        per_step = run.recipe["train"]["batch_size"] * run.recipe["train"]["accumulate"] * processes
        seconds, done = 0.0, 0
        for entry in run.log:
            if entry["event"] == "step":
                seconds += (entry["step"] - done) * per_step / entry["images_per_s"]
                done = entry["step"]
    except (KeyError, TypeError, ZeroDivisionError):  # of another version, or truncated
        return None
    return seconds / 3600
