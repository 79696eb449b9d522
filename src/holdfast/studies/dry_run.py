"""Dry run of a study: planned runs and estimated time, measured for some seconds per row on untrained models."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.analysis.analyze import analyze
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import EvalProtocol
from holdfast.evaluation.dry_run import dry_run_report as forecast_evaluation
from holdfast.evaluation.setup import EvaluationRequest
from holdfast.runtime.cores import core_count
from holdfast.runtime.dry_run import NOTHING, DryRunReport, Seconds, spent, time_work
from holdfast.studies.checks import check_study
from holdfast.studies.config import Study
from holdfast.studies.measure_run import ANALYSED, SETTINGS, compute_of
from holdfast.studies.runner import Run, missing_runs, run_path, with_starts
from holdfast.training.accelerator import engine
from holdfast.training.build import TrainState, build_training
from holdfast.training.dry_run import forecast_run
from holdfast.training.run_folder import RunFolder, describe

TRIED = 4  # images on which an analysis is timed


@dataclass(frozen=True)
class RunCost:
    """Estimated cost of one run."""

    training: Seconds = NOTHING
    evaluating: Seconds = NOTHING
    analysing: Seconds = NOTHING
    size: int = 0
    at_least: bool = False

    def total(self, *, trained: bool, measured: bool) -> Seconds:
        """Total time without the parts that are finished or not requested."""
        after = self.evaluating + self.analysing if measured else NOTHING
        return after if trained else self.training + after


def dry_run_report(
    study: Study, *, out: Path, processes: int = 1, tell: Callable[[str], None] = lambda row: None
) -> DryRunReport:
    """Time every unfinished row with its first seed; rows that start from another are assumed to cost the same."""
    check_study(study)
    missing = missing_runs(study, out)
    start = Seconds(spent(), 0.0)
    todo = with_starts(study, missing, out)
    costs, untried = _costs(study, todo, tell)
    spans = [_span(study, run, costs[run[0]], missing, out) for run in todo]
    total = Seconds(sum(each.processor for each in spans), sum(each.wall for each in spans))
    at_a_time = max(1, min(processes, len(todo), core_count()))
    counts = {"rows": len(study.rows), "seeds": len(study.seeds), "runs": len(study.rows) * len(study.seeds)}
    counts |= {
        "runs to do": len(missing),
        **({"runs to start from": extra} if (extra := len(todo) - len(missing)) else {}),
    }
    remarks = (
        (f"not timed, assumed to cost as much as the row they start from: {', '.join(untried)}",) if untried else ()
    )
    return DryRunReport(
        f"would run the study {study.name} in {out}",
        counts,
        sum(costs[name].size for name, _ in todo),
        start + Seconds(total.processor, total.wall / at_a_time),
        any(costs[name].at_least for name, _ in todo),
        {
            "training": sum(costs[name].training.processor for name, _ in todo),
            "evaluating": sum(costs[name].evaluating.processor for name, _ in missing),
            "analysing": sum(costs[name].analysing.processor for name, _ in missing),
        },
        remarks,
    )


def _span(study: Study, run: Run, cost: RunCost, missing: list[Run], out: Path) -> Seconds:
    return cost.total(trained=RunFolder(run_path(out, *run)).finished, measured=run in missing)


def _costs(study: Study, todo: list[Run], tell: Callable[[str], None]) -> tuple[dict[str, RunCost], list[str]]:
    """Costs by row or step; rows that start from another one cost as much as their start."""
    costs: dict[str, RunCost] = {}
    untried = []
    for name, seed in todo:
        if name in costs:
            continue
        needed = study.needs(name)
        if needed:
            untried.append(name)
            costs[name] = costs.get(needed[-1]) or RunCost()
            continue
        tell(name)
        costs[name] = _time_run(study, name, seed)
    known = [cost for cost in costs.values() if cost.size]
    if todo and not known:
        raise HoldfastError(
            "--dry-run of a study times rows that do not start from others, but all of those are finished"
        )
    return {name: cost if cost.size else known[0] for name, cost in costs.items()}, untried


def _time_run(study: Study, name: str, seed: int) -> RunCost:
    recipe = study.recipe_of(name, seed)
    with engine(recipe.train, folder=Path()) as accelerator:
        state = build_training(recipe, accelerator)
        trained = forecast_run(state, Path())
        if name not in study.rows:
            return RunCost(trained.spent, size=trained.size)
        model: Any = state.bare if recipe.model.adapt is None else state.bare.backbone
        describe(model, image=state.image)
        data = [(study.test, study.suites, study.limit), *((other, "clean", None) for other in study.shifts.values())]
        protocol = EvalProtocol(preparation=study.preparation)
        found = [_evaluation_estimate(state, *each, protocol=protocol) for each in data]
        measured = Seconds(sum(f.spent.processor for f in found), sum(f.spent.wall for f in found))
        size = trained.size + sum(each.size for each in found)
        return RunCost(
            trained.spent, measured, _analysis_seconds(study, state), size, any(each.at_least for each in found)
        )


def _evaluation_estimate(
    state: TrainState, data: str, suites: object, limit: int | None, *, protocol: EvalProtocol
) -> DryRunReport:
    before = spent()
    found = forecast_evaluation(
        EvaluationRequest(
            state.bare, data, suites, limit=limit, workers=0, protocol=protocol, compute=compute_of(state.recipe)
        )
    )
    started = Seconds(max(found.parts["starting"] - before, 0.0), 0.0)  # without earlier work of this process
    work = Seconds(sum(value for name, value in found.parts.items() if name != "starting"), found.spent.wall)
    return DryRunReport(found.what, found.counts, found.size, started + work, found.at_least)


def _analysis_seconds(study: Study, state: TrainState) -> Seconds:
    if not study.analyses:
        return NOTHING
    count = min(study.limit or ANALYSED, ANALYSED)
    few = min(TRIED, count)
    options: dict[str, Any] = {"settings": SETTINGS, "protocol": EvalProtocol(preparation=study.preparation)}
    took, _ = time_work(lambda: analyze(state.bare, study.test, study.analyses, limit=few, show=False, **options))
    return took.times(count / few)
