"""``holdfast.improve``: the best robust fine-tuning of a model for some data and a budget."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.improvement.candidates import START
from holdfast.improvement.clock import parse_budget
from holdfast.improvement.decide import Decision
from holdfast.improvement.plan import Plan
from holdfast.improvement.prepare import Request, Tell, model_values, names_of
from holdfast.improvement.run import plan_of, run_request
from holdfast.reporting.page import report
from holdfast.training.recipe_files import load_recipe, merge

REPORT = "report.html"


def improve(
    model: str | None = None,
    *,
    budget: str | float,
    train: str | None = None,
    val: str | None = None,
    test: str | None = None,
    recipe: str | Path | Mapping[str, Any] = "finetune",
    overrides: Mapping[str, Any] | None = None,
    methods: str | Sequence[str] = (),
    seeds: int = 1,
    against: str = "corruptions",
    out: str | Path = "runs/improve",
    tell: Tell | None = None,
    show: bool | None = False,
) -> Decision:
    """Fine-tune a model in several robust ways that fit a budget, choose one without the test images, and decide.

    Call it again to resume: what is finished is not done again, and the decision is the same.

    Args:
        model: the start: ``run:DIR``, ``timm:NAME``, ``timm:NAME@FILE``, or the name of an architecture to train from
            nothing; by default that of the recipe.
        budget: wall time, such as ``"2h"``, or seconds; start-up and report are not counted.
        train: spec of the training images, instead of the recipe's.
        val: spec of the validation images; one half stops trainings early, the other half chooses.
        test: spec of the test images, which are measured once; by default a part of ``val``.
        recipe: how plain training is done.
        overrides: values that replace the recipe's, as nested dictionaries.
        methods: names of candidates, such as ``augmix+afat``; by default those for ``against``.
        seeds: seeds of the winner and of plain training in the report.
        against: ``corruptions`` or ``attacks``.
        out: folder of everything: plan, runs, winner, table, decision, report.
        tell: called with lines about the progress.
        show: show the progress of every training; None shows it on a terminal.
    """
    request = make_request(
        model,
        budget=budget,
        data={"train": train, "val": val},
        test=test,
        recipe=recipe,
        overrides=overrides,
        methods=methods,
        seeds=seeds,
        against=against,
    )
    out = Path(out)
    decision = run_request(request, out=out, tell=tell or _silent, show=show)
    write_report(decision, out)
    return decision


def make_request(
    model: str | None,
    *,
    budget: str | float,
    data: Mapping[str, str | None],
    test: str | None,
    recipe: str | Path | Mapping[str, Any] = "finetune",
    overrides: Mapping[str, Any] | None = None,
    methods: str | Sequence[str] = (),
    seeds: int = 1,
    against: str = "corruptions",
) -> Request:
    """The request of these arguments, checked as far as that needs no images."""
    values = merge(overrides or {}, {"data": {name: spec for name, spec in data.items() if spec is not None}})
    if model is not None:
        values = merge(values, {"model": model_values(model)})
    base = load_recipe(recipe, values)
    if base.model.needs_init and not base.model.init and base.model.name is None:
        raise HoldfastError("holdfast improve needs --model, such as timm:deit_small_patch16_224.fb_in1k or run:DIR")
    seconds = parse_budget(budget) if isinstance(budget, str) else float(budget)
    return Request(base, test, seconds, names_of(methods), seeds, against)


def plan_only(request: Request, *, out: Path, tell: Tell) -> Plan:
    """The plan without running it."""
    return plan_of(request, out=out, tell=tell)


def write_report(decision: Decision, out: Path) -> Path:
    """Write the page that compares start, plain training and challenger; the decision is its first screen."""
    path = out / REPORT
    runs = {
        START: out / START if START in decision.scores else None,
        "plain": Path(decision.folders["plain"]),
        decision.challenger: Path(decision.folders["challenger"]),
    }
    shown = {name: folder for name, folder in runs.items() if folder is not None}
    report(list(shown.values()), names=list(shown), title="Which fine-tuning holds?", out=path)
    return path


def _silent(line: str) -> None:
    """Tell nobody."""
