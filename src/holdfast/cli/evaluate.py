"""``holdfast evaluate``: measure any model on any robustness protocol; an interrupted evaluation resumes."""

import os
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser
from rich.console import Console

from holdfast.cli.console import message_console, table_width
from holdfast.cli.shared_options import (
    add_classes,
    add_cluster,
    add_dry_run,
    add_preprocessing,
    check_model,
    cluster_of,
    dry_run,
    model_file_name,
    own_data,
    print_dry_run_comparison,
    protocol_of,
    run_folder,
    with_checkpoint,
)
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.evaluation.suites import Suite
    from holdfast.evaluation.until import Until
    from holdfast.records.records import Records


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast evaluate``."""
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="runs' folders; records are written there, and a run's validation data are the default",
    )
    parser.add_argument(
        "--model",
        help="any model: run:DIR, timm:NAME[@CHECKPOINT], local-dir:DIR, python:module:function, onnx:FILE, hf:DIR, "
        "torchvision:NAME[@CHECKPOINT]",
    )
    parser.add_argument(
        "--data",
        nargs="+",
        help="one or more data specs, see `holdfast list data`; each serves the suites it fits (default: the run's)",
    )
    parser.add_argument(
        "--suite",
        help="comma-separated suites, see `holdfast list suites` (default: clean,corruptions; clean with --attack; an "
        "official set's own)",
    )
    parser.add_argument(
        "--attack",
        action="append",
        metavar="NAME:SETTINGS",
        help="an attack with settings, such as pgd:eps=4/255,steps=20; separate several values by |; repeatable",
    )
    parser.add_argument("--checkpoint", help="of a run: best, last or a weight file (default: the exported weights)")
    parser.add_argument(
        "--out", type=Path, help="folder in which records/ is written (default: the run's, or runs/MODEL)"
    )
    parser.add_argument("--limit", type=int, help="number of images, stratified by class; 0 for all")
    parser.add_argument("--seed", type=int, default=0, help="random seed of corruptions and attacks")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 …")
    parser.add_argument("--amp", action="store_true", help="run the model in half precision (not the attacks)")
    parser.add_argument(
        "--batch-size", type=int, default=64, help="images per forward pass; affects the results of int8 models only"
    )
    parser.add_argument(
        "--attack-batch-size", type=int, default=64, help="images per attacked batch; stored in the records"
    )
    parser.add_argument(
        "--shard-size",
        type=int,
        help="images per record file (default: 256, fewer for large images); stored in the records",
    )
    parser.add_argument(
        "--workers", type=int, help="processes that read and corrupt images (default: depends on the machine)"
    )
    parser.add_argument("--extra", action="store_true", help="include the four extra corruptions, or perturbations")
    parser.add_argument(
        "--stored-jpeg", action="store_true", help="re-encode corrupted images as JPEG q85, like the stored ImageNet-C"
    )
    parser.add_argument(
        "--preset", help="corruption protocol: imagenet, cifar, tiny, inception or any (default: from the image size)"
    )
    parser.add_argument("--exif", default="ignore", help="ignore or apply EXIF orientation")
    parser.add_argument(
        "--classes-differ", action="store_true", help="evaluate even if the class names of model and data differ"
    )
    add_classes(parser)
    add_preprocessing(parser)
    parser.add_argument(
        "--predictions", type=Path, metavar="DIR", help="write predicted label maps as PNG files instead of evaluating"
    )
    parser.add_argument(
        "--keep-examples",
        type=int,
        default=0,
        metavar="N",
        help="store thumbnails of N failures for the report; they are copies of your data, so mind its licence",
    )
    parser.add_argument("--fresh", action="store_true", help="start over instead of resuming")
    parser.add_argument(
        "--until",
        metavar="POINTS",
        help="stop when the interval of the headline score has this half-width in points, or those of some scores: "
        "0.5, or mce=1,clean=0.5,fog=2; a smaller number, or none, continues",
    )
    parser.add_argument(
        "--budget",
        metavar="COST",
        help="stop after this time, such as 10m or 1h30m, or at this number of passes (images × cells)",
    )
    parser.add_argument(
        "--of-these-images",
        action="store_true",
        help="with --until: estimate the score of exactly these images instead of new ones like them",
    )
    add_dry_run(parser)
    add_cluster(parser, task="shards of images")
    parser.usage = (
        "holdfast evaluate [RUN …] [--model MODEL] [--data DATA] [--suite SUITES]\n                         [OPTIONS]"
    )


def run(arguments: Namespace) -> int:
    """Evaluate, then print the scores and the folder of the records."""
    from holdfast.evaluation.config import ComputeConfig
    from holdfast.evaluation.dry_run import dry_run_report
    from holdfast.evaluation.evaluate import evaluate
    from holdfast.evaluation.setup import EvaluationRequest
    from holdfast.evaluation.suites import assign

    first = os.environ.get("RANK", "0") == "0"
    console = message_console(quiet=not first)
    models = _models(arguments)
    given: dict[str, Any] = {name: getattr(arguments, name) for name in ("seed", "device", "workers")}
    given["limit"] = arguments.limit or None
    known = {each.name: getattr(arguments, each.name) for each in fields(ComputeConfig) if each.name in vars(arguments)}
    given |= {
        "protocol": protocol_of(arguments),
        "compute": ComputeConfig(**{**known, "cluster": cluster_of(arguments)}),
    }
    until = _until(arguments)
    if arguments.predictions is not None:
        return _predict(models, arguments, console)
    suites = _suites(arguments)
    wanted = [
        (model, spec, names, arguments.out or _folder(model))
        for model in models
        for spec, names in assign(suites, arguments.data or [_own_data(model, console)])
    ]
    if until is not None and until.named and len(wanted) > len(models):
        raise HoldfastError("--until with scores by name takes one data set at a time: run it once for each")
    if arguments.dry_run:
        requests = [EvaluationRequest(*each, **given) for each in wanted]
        return dry_run("evaluate", arguments, [dry_run_report(request, until) for request in requests])
    given |= {"fresh": arguments.fresh, "show": True, "until": until}
    with print_dry_run_comparison("evaluate", arguments):
        records = [evaluate(model, spec, names, out=out, **given) for model, spec, names, out in wanted]
    if first:
        _show(records, console)
        _show_estimates(records, until, console)
    return 0


def _until(arguments: Namespace) -> "Until | None":
    """When to stop; None if everything is to be measured."""
    from holdfast.evaluation.until import Until

    if arguments.until is None and arguments.budget is None:
        if arguments.of_these_images:
            raise HoldfastError("--of-these-images needs --until, got none")
        return None
    if arguments.predictions is not None:
        raise HoldfastError("--predictions writes the label maps of all images: omit --until and --budget")
    return Until(arguments.until, arguments.budget, arguments.of_these_images)


def _suites(arguments: Namespace) -> "tuple[Suite, ...]":
    from holdfast.evaluation.suites import parse_suites

    attacks = arguments.attack or []
    for attack in attacks:
        if ":" not in attack:
            raise HoldfastError(
                f"--attack must be NAME:KEY=VALUE, as in pgd:eps=4/255, got {attack!r}; names alone are suites"
            )
    usual = "clean" if attacks else "clean,corruptions"
    return parse_suites([arguments.suite or _default_suites(arguments.data or [""], usual), *attacks])


def _default_suites(data: Sequence[str], usual: str) -> str:
    """The usual suites, if any data are images of one's own, and those of the official sets."""
    from holdfast.data.official_sets import is_official, open_official

    own = [open_official(spec).suite for spec in data if is_official(spec)]
    return ",".join(own if len(own) == len(data) else [usual, *own])


def _folder(model: str) -> Path | None:
    """The folder of a model's records; None for a run, whose own it is."""
    return None if run_folder(model) else Path("runs") / model_file_name(model)


def _predict(models: list[str], arguments: Namespace, console: Console) -> int:
    from holdfast.inference.label_map_files import export_predictions

    if len(models) > 1:
        raise HoldfastError(f"--predictions needs one model, got {len(models)}")
    (model,) = models
    data = arguments.data or [_own_data(model, console)]
    options = {"device": arguments.device, "protocol": protocol_of(arguments)}
    for spec in data:
        count = export_predictions(model, spec, arguments.predictions, **options)
        console.print(f"{count} label maps of {spec}: {arguments.predictions}", markup=False)
    return 0


def _models(arguments: Namespace) -> list[str]:
    if bool(arguments.runs) == (arguments.model is not None):
        given = "both" if arguments.runs else "neither"
        raise HoldfastError(f"holdfast evaluate needs either runs' folders or --model, got {given}")
    if len(arguments.runs) > 1 and arguments.out is not None:
        raise HoldfastError("--out is the folder of one model's records, got several runs: omit it")
    models = arguments.runs or [arguments.model]
    for model in models:  # all of them before the first is measured
        check_model(model)
    return [with_checkpoint(model, arguments.checkpoint) for model in models]


def _own_data(model: str, console: Console) -> str:
    data = own_data(model, command="evaluate")
    console.print(f"data: {data} (from the run's recipe)", markup=False)
    return data


def _show_estimates(records: "list[Records]", until: "Until | None", console: Console) -> None:
    """Each goal's score with the half-width of its interval."""
    from holdfast.evaluation.until import estimates_of

    for found in records:
        for estimate in estimates_of(found, until) if until is not None else ():
            model = f"{found.header.get('model', 'model')}: " if len(records) > 1 else ""
            console.print(f"{model}{estimate}", markup=False)


def _show(records: "list[Records]", console: Console) -> None:
    from holdfast.data.class_labels import RULES
    from holdfast.reporting.export.tables import export

    console.print(export(records, width=table_width()), markup=False)
    for found in records:
        if rule := found.header.get("labels"):
            console.print(f"labels of {found.header['data']} from {rule}: {RULES.get(rule, rule)}", markup=False)
        if found.header["partial"]:
            console.print(
                f"partial: {found.header['data']} is missing {', '.join(found.header['partial'])}", markup=False
            )
        if found.excluded:
            examples = ", ".join(found.excluded[:5]) + (" …" if len(found.excluded) > 5 else "")
            console.print(
                f"unreadable images, excluded from every cell: {len(found.excluded)} ({examples})", markup=False
            )
        console.print(f"records: {found.folder}", markup=False)
