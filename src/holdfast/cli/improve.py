"""``holdfast improve``: the best robust fine-tuning for your data and a budget, chosen without the test images."""

import json
from argparse import SUPPRESS, Namespace
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from holdfast.cli import EXIT_OK
from holdfast.cli.console import message_console
from holdfast.cli.shared_options import add_cluster, cluster_of
from holdfast.cli.train import add_recipe_values, recipe_values, shorten_help
from holdfast.cli.train import merge_dictionary_options as merge_as_train_does
from holdfast.errors import HoldfastError
from holdfast.io.yaml import read_yaml
from holdfast.training.recipe_files import merge

__all__ = ["add_arguments", "merge_dictionary_options", "run", "shorten_help"]


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast improve``: its own, and one per value of a recipe."""
    parser.add_argument(
        "recipe", nargs="?", default="finetune", help="how plain training is done: a shipped recipe or a YAML file"
    )
    parser.add_argument(
        "--model",
        dest="start",
        help="the start: run:DIR, timm:NAME, timm:NAME@FILE, or an architecture (default: the recipe's)",
    )
    parser.add_argument("--budget", required=True, help="wall time, such as 10m, 2h or 1d")
    parser.add_argument(
        "--data.test",
        metavar="SPEC",
        default=SUPPRESS,
        help="images of the report, measured once; without it a part of data.val is kept for the report",
    )
    parser.add_argument(
        "--methods", help="candidates, such as augmix,afat,augmix+afat (default: those for --against; plain is added)"
    )
    parser.add_argument("--seeds", type=int, default=1, help="seeds of the winner and of plain training in the report")
    parser.add_argument(
        "--against", default="corruptions", help="what the model must hold against: corruptions or attacks"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/improve"), help="folder of plan, runs and decision")
    add_cluster(parser, task="the candidates of a rung at once,")
    for option in ("--class-map", "--classes"):  # known only to be refused
        parser.add_argument(option, help=SUPPRESS)
    parser.add_argument("--dry-run", action="store_true", help="show the plan; run and write nothing")
    parser.usage = (
        "holdfast improve [RECIPE] --model MODEL --data.train=SPEC\n"
        "                        --data.val=SPEC --budget TIME [OPTIONS]"
    )
    add_recipe_values(parser)


def merge_dictionary_options(argv: list[str]) -> list[str]:
    """Dotted options as for ``holdfast train``; ``--model`` and all ``--model.KEY`` become one value of ``--model``.

    jsonargparse takes every ``--model.KEY`` for the whole of ``--model``.
    """
    merged = merge_as_train_does(argv)
    if not any(word.startswith("--model.") for word in merged):
        return merged
    found, start, values = list[str](), None, dict[str, Any]()
    words = iter(merged)
    for word in words:
        option, sign, value = word.partition("=")
        if option != "--model" and not option.startswith("--model."):
            found.append(word)
            continue
        text = value if sign else next(words, "")
        if option == "--model":
            start = text
            continue
        nested = read_yaml(text, name=option)
        for key in reversed(option.split(".")[1:]):
            nested = {key: nested}
        values = merge(values, nested)
    return [*found, f"--model={json.dumps([start, values])}"]


def run(arguments: Namespace) -> int:
    """Plan, run, and print the decision."""
    from holdfast.improvement.improve import make_request, plan_only, write_report
    from holdfast.improvement.plan import described
    from holdfast.improvement.run import TABLE, run_request

    cluster = cluster_of(arguments)
    if cluster is not None and cluster.gather:
        raise HoldfastError("--gather does not apply to improve: --out must be a folder that all nodes share")
    if arguments.class_map is not None or arguments.classes is not None:
        raise HoldfastError(
            "--class-map and --classes do not apply to improve: all models have the classes of data.train; evaluate "
            "the winner with them, holdfast evaluate --model run:OUT/winner --class-map FILE"
        )
    values: dict[str, Any] = recipe_values(arguments)
    if arguments.start is not None and arguments.start.startswith("["):  # with all --model.KEY
        arguments.start, of_model = json.loads(arguments.start)
        values = merge(values, {"model": of_model})
    test = values.get("data", {}).pop("test", None)
    request = make_request(
        arguments.start,
        budget=arguments.budget,
        data={},
        test=test,
        recipe=arguments.recipe,
        overrides=values,
        methods=arguments.methods or "",
        seeds=arguments.seeds,
        against=arguments.against,
    )
    console = message_console(stderr=True)

    def tell(line: str) -> None:
        console.print(line, markup=False)

    if arguments.dry_run:
        print("\n".join(described(plan_only(request, out=arguments.out, tell=tell))))
        return EXIT_OK
    decision = run_request(request, out=arguments.out, tell=tell, show=None, cluster=cluster)
    page = write_report(decision, arguments.out)
    told = message_console()
    for line in (*summary(decision), f"all candidates: {arguments.out / TABLE}", f"report: {page}"):
        told.print(line, markup=False)
    return EXIT_OK


def summary(decision: Any) -> list[str]:
    """The decision for the terminal."""
    from holdfast.reporting.sections.improvement import domain_lines
    from holdfast.runtime.dry_run import human_seconds

    seeds = f", {decision.seeds} seeds" if decision.seeds > 1 else ", one seed: images only"
    lines = [
        decision.sentence,
        f"{decision.candidates} candidates, {decision.tried} models to choose from; {decision.images} test images "
        f"measured once{seeds}; {decision.spent / decision.budget:.0%} of the {human_seconds(decision.budget)} used",
        *(f"skipped, the budget was used up: {', '.join(decision.skipped)}" for _ in range(bool(decision.skipped))),
        *domain_lines(decision.domains, challenger=decision.challenger),
        *decision.remarks,
        *(f"again: {'; '.join(decision.commands)}" for _ in range(bool(decision.commands))),
        f"in CI: {decision.gate}",
    ]
    return lines
