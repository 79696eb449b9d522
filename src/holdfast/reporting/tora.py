"""TORA's tables and curve from the files of runs: λ × predictions, tuning methods × λ, and the trade-off as points.

The shapes of the slides' second and third table (Li and Xu, CVPR 2023):

    python -m holdfast.reporting.tora runs/digits-tora_vit_nano [RUN …]

prints both as Markdown. It reads records and run files; nothing here loads a model. Runs of one method and λ (seeds)
are averaged, with the smallest and largest in brackets.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from holdfast.errors import HoldfastError
from holdfast.metrics.summary import Score, summarise
from holdfast.records.records import load_records
from holdfast.reporting.export.text import Block, Column, Line, Value, markdown
from holdfast.reporting.tables import is_headline

DESCRIPTION = "tora.json"
VIEWS = ("acc", "rob", "joint")  # in the slides' order
METHODS = ("head-only", "single-adapter", "adapter-fusion", "tora")


@dataclass(frozen=True, eq=False)
class TradeOffRun:
    """One finished phase-2 run: where it is, how it was tuned, λ, and what its description says."""

    folder: Path
    method: str
    weight: float
    description: Mapping[str, Any]

    @cached_property
    def scores(self) -> Mapping[str, Mapping[str, Score]]:
        """The headline scores of every prediction, over all data sets that the run was evaluated on."""
        found: dict[str, dict[str, Score]] = {}
        for records in load_records(self.folder):
            for view in records.views:
                summary = summarise(records.view(view), resamples=0)
                found.setdefault(view, {}).update({s.name: s for s in summary if is_headline(s, records.task)})
        return found

    @property
    def hours(self) -> float | None:
        """Hours of training steps, phase 1 included; evaluation and start-up are not in it."""
        start = _recipe(self.folder).get("tora", {}).get("start")
        parts = [_hours(self.folder)]
        while start is not None:
            parts.append(_hours(Path(start)))
            start = _recipe(Path(start)).get("tora", {}).get("start")
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None


def read_runs(folders: Iterable[str | Path]) -> list[TradeOffRun]:
    """Every finished phase-2 run in or below these folders, by method and λ."""
    found = []
    for folder in map(Path, folders):
        for path in sorted({folder / DESCRIPTION, *folder.rglob(DESCRIPTION)}):
            description = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            if description.get("notes", {}).get("phase") == "joint":
                (weight,) = description["notes"]["lambdas"]
                found.append(TradeOffRun(path.parent, description["settings"]["method"], weight, description))
    if not found:
        raise HoldfastError("runs must be folders of finished TORA runs with a lambda each (tora.json), found none")
    return sorted(found, key=lambda run: (METHODS.index(run.method), run.weight))


def heads_table(runs: Sequence[TradeOffRun], *, method: str = "tora") -> Block:
    """λ × the three predictions (the slides' second table)."""
    runs = [run for run in runs if run.method == method]
    names = _score_names(runs)
    lines = [
        Line(f"λ {weight:g}, {view}", tuple(_mean(group, view, name) for name in names))
        for weight, group in _groups(runs)
        for view in VIEWS
        if any(view in run.scores for run in group)
    ]
    return Block(f"{method}: predictions", tuple(_columns(runs, names)), tuple(lines))


def methods_table(runs: Sequence[TradeOffRun]) -> Block:
    """Tuning methods × λ with parameters, GMACs and hours, joint prediction (the slides' third table)."""
    names = _score_names(runs)
    costs = (Column("GMACs"), Column("params", unit="M"), Column("hours"))
    lines = []
    for weight in sorted({run.weight for run in runs}):
        for method in METHODS:
            group = [run for run in runs if (run.method, run.weight) == (method, weight)]
            if group:
                values = [*_costs(group), *(_mean(group, "joint", name) for name in names)]
                lines.append(Line(f"λ {weight:g}, {method}", tuple(values)))
    return Block("tuning methods", (*costs, *_columns(runs, names)), tuple(lines))


def trade_off_curve(runs: Sequence[TradeOffRun], *, robust: str) -> list[dict[str, Any]]:
    """The curve as points: one per run and prediction, with its λ, clean accuracy and the score named ``robust``."""
    points = []
    for run in runs:
        for view, scores in run.scores.items():
            if "clean" in scores and robust in scores:
                point = {"method": run.method, "lambda": run.weight, "view": view, "folder": str(run.folder)}
                points.append(point | {"clean": scores["clean"].value, "robust": scores[robust].value})
    return points


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables as Markdown."""
    try:
        runs = read_runs(sys.argv[1:] if arguments is None else arguments)
        print(markdown([heads_table(runs), methods_table(runs)], ["mean over seeds, [smallest, largest]"]))
    except HoldfastError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _groups(runs: Sequence[TradeOffRun]) -> list[tuple[float, list[TradeOffRun]]]:
    weights = sorted({run.weight for run in runs})
    return [(weight, [run for run in runs if run.weight == weight]) for weight in weights]


def _score_names(runs: Sequence[TradeOffRun]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for scores in run.scores.values() for name in scores))


def _columns(runs: Sequence[TradeOffRun], names: Sequence[str]) -> list[Column]:
    known = {name: score for run in runs for scores in run.scores.values() for name, score in scores.items()}
    return [Column(known[name].label, unit=known[name].unit) for name in names]


def _mean(group: Sequence[TradeOffRun], view: str, name: str) -> Value | None:
    return _value([run.scores[view][name].value for run in group if name in run.scores.get(view, {})])


def _value(values: Sequence[float]) -> Value | None:
    if not values:
        return None
    return Value(fmean(values), min(values), max(values)) if len(values) > 1 else Value(values[0])


def _costs(group: Sequence[TradeOffRun]) -> list[Value | None]:
    cost = group[0].description.get("cost", {})
    hours = [run.hours for run in group if run.hours is not None]
    return [
        Value(cost["gmacs"]) if "gmacs" in cost else None,
        Value(cost["parameters"] / 1e6) if "parameters" in cost else None,
        Value(fmean(hours)) if hours else None,
    ]


def _recipe(folder: Path) -> dict[str, Any]:
    path = folder / "recipe.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _hours(folder: Path) -> float | None:
    """From the log: every line tells its steps' images per second."""
    path, recipe = folder / "log.jsonl", _recipe(folder)
    if not path.is_file() or not recipe:
        return None
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    processes = next((entry["processes"] for entry in entries if entry["event"] == "end"), 1)
    per_step = recipe["train"]["batch_size"] * recipe["train"]["accumulate"] * processes
    seconds, done = 0.0, 0
    for entry in entries:
        if entry["event"] == "step":
            seconds += (entry["step"] - done) * per_step / entry["images_per_s"]
            done = entry["step"]
    return seconds / 3600


if __name__ == "__main__":
    sys.exit(main())
