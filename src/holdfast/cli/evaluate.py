"""``holdfast evaluate``: measure any model on any robustness protocol; run again, it goes on where it was."""

import os
from argparse import Namespace
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser
from rich.console import Console

from holdfast.cli.clusters import add_cluster, cluster_of
from holdfast.cli.planning import add_dry_run, dry_run, told_how_far_off
from holdfast.cli.run_folders import model_file_name, own_data, run_folder, with_checkpoint
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.evaluation.suites import Suite
    from holdfast.records.records import Records


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast evaluate``."""
    parser.add_argument("run", nargs="?", help="a run's folder; its records go there, and its data are the default")
    parser.add_argument(
        "--model",
        help="any model: run:DIR, timm:NAME[@CHECKPOINT], local-dir:DIR, python:module:function, onnx:FILE, hf:DIR",
    )
    parser.add_argument(
        "--data",
        nargs="+",
        help="one or several, `holdfast list data` lists the forms; each serves its suites (default: the run's own)",
    )
    parser.add_argument(
        "--suite",
        help="a comma list of suites, see `holdfast list suites` (default: clean,corruptions; clean with --attack)",
    )
    parser.add_argument(
        "--attack",
        action="append",
        metavar="NAME:SETTINGS",
        help="an attack with settings, such as pgd:eps=4/255,steps=20; several values with |; may be repeated",
    )
    parser.add_argument("--checkpoint", help="of a run: best, last or a file of weights (default: what it exported)")
    parser.add_argument("--out", type=Path, help="the folder that gets records/ (default: the run's, or runs/MODEL)")
    parser.add_argument("--limit", type=int, help="measure so many images only, every class in its share; 0 for all")
    parser.add_argument("--seed", type=int, default=0, help="of corruptions and attacks")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 …")
    parser.add_argument("--amp", action="store_true", help="run the model in half precision (not the attacks)")
    passed = "images per forward pass; changes results of int8 models only"
    parser.add_argument("--batch-size", type=int, default=64, help=passed)
    parser.add_argument("--attack-batch-size", type=int, default=64, help="images per attack; records name it")
    parser.add_argument(
        "--shard-size", type=int, help="images per unit, a file (default: 256, fewer of large ones); records name it"
    )
    parser.add_argument("--workers", type=int, help="processes that read and corrupt images (default: by the machine)")
    parser.add_argument("--extra", action="store_true", help="also the four extra corruptions, or perturbations")
    parser.add_argument(
        "--stored-jpeg", action="store_true", help="re-encode corrupted images as JPEG q85, as the stored ImageNet-C"
    )
    parser.add_argument(
        "--preset", help="the protocol: imagenet, cifar, tiny, inception or any (default: by the images)"
    )
    parser.add_argument("--exif", default="ignore", help="ignore or apply the rotations of a folder's images")
    parser.add_argument(
        "--classes-differ", action="store_true", help="measure although the data's classes have other names"
    )
    parser.add_argument("--size", type=int, help="side of the model's images, if it does not say")
    parser.add_argument("--mean", type=float, nargs=3, help="subtracted from pixels from 0 to 1, if it does not say")
    parser.add_argument("--std", type=float, nargs=3, help="divides them then")
    parser.add_argument("--probabilities", action="store_true", help="the model answers with them, not with logits")
    parser.add_argument("--window", type=int, help="look at large images by windows of this side (segmentation)")
    parser.add_argument("--stride", type=int, help="pixels from one window to the next (default: 3/4 of the window)")
    parser.add_argument(
        "--predictions", type=Path, metavar="DIR", help="write predicted label maps as PNG files instead of measuring"
    )
    parser.add_argument(
        "--keep-examples",
        type=int,
        default=0,
        metavar="N",
        help="store thumbnails of N failures for the report; copies of your data, so mind its licence",
    )
    parser.add_argument("--fresh", action="store_true", help="start over instead of going on")
    add_dry_run(parser)
    add_cluster(parser, task="shards of images")
    parser.usage = "holdfast evaluate [RUN] [--model MODEL] [--data DATA] [--suite SUITES] [OPTIONS]"


def run(arguments: Namespace) -> int:
    """Measure, then print the scores and where the records are."""
    from holdfast.evaluation.errand import Request
    from holdfast.evaluation.evaluate import evaluate
    from holdfast.evaluation.forecast import forecast
    from holdfast.evaluation.options import Compute, Protocol
    from holdfast.evaluation.suites import assign

    first = os.environ.get("RANK", "0") == "0"
    console = Console(quiet=not first, soft_wrap=True, highlight=False)
    model = _model(arguments)
    data = arguments.data or [_own_data(model, console)]
    given: dict[str, Any] = {name: getattr(arguments, name) for name in ("seed", "device", "workers")}
    given["limit"] = arguments.limit or None
    compute = replace(_options(Compute, arguments), cluster=cluster_of(arguments))
    given |= {"protocol": _options(Protocol, arguments), "compute": compute}
    if arguments.predictions is not None:
        return _predict(model, data, arguments, console)
    out = arguments.out or (None if run_folder(model) else Path("runs") / model_file_name(model))
    served = assign(_suites(arguments), data)
    if arguments.dry_run:
        requests = [Request(model, spec, names, out, **given) for spec, names in served]
        return dry_run("evaluate", arguments, [forecast(request) for request in requests])
    given |= {"fresh": arguments.fresh, "show": True}
    with told_how_far_off("evaluate", arguments):
        records = [evaluate(model, spec, names, out=out, **given) for spec, names in served]
    if first:
        _show(records, console)
    return 0


def _suites(arguments: Namespace) -> "tuple[Suite, ...]":
    from holdfast.evaluation.suites import parse_suites

    attacks = arguments.attack or []
    for attack in attacks:
        if ":" not in attack:
            raise HoldfastError(
                f"--attack must be NAME:KEY=VALUE, as in pgd:eps=4/255, got {attack!r}; names alone are suites"
            )
    return parse_suites([arguments.suite or ("clean" if attacks else "clean,corruptions"), *attacks])


def _options(kind: Any, arguments: Namespace) -> Any:
    """An object of options from the arguments that are called like its fields."""
    given = vars(arguments)
    return kind(**{each.name: given[each.name] for each in fields(kind) if each.name in given})


def _predict(model: str, data: list[str], arguments: Namespace, console: Console) -> int:
    from holdfast.evaluation.predictions import export_predictions

    options = {name: getattr(arguments, name) for name in ("window", "stride", "device")}
    for spec in data:
        count = export_predictions(model, spec, arguments.predictions, **options)
        console.print(f"{count} label maps of {spec}: {arguments.predictions}", markup=False)
    return 0


def _model(arguments: Namespace) -> str:
    if (arguments.run is None) == (arguments.model is None):
        came = "neither" if arguments.run is None else "both"
        raise HoldfastError(f"holdfast evaluate needs a run's folder or --model, one of the two; got {came}")
    return with_checkpoint(arguments.model or arguments.run, arguments.checkpoint)


def _own_data(model: str, console: Console) -> str:
    data = own_data(model, command="evaluate")
    console.print(f"data: {data} (of the run's recipe)", markup=False)
    return data


def _show(records: "list[Records]", console: Console) -> None:
    from holdfast.reporting.export.tables import export

    console.print(export(records, width=console.width if console.is_terminal else 120), markup=False)
    for found in records:
        if found.header["partial"]:
            console.print(f"partial: {found.header['data']} lacks {', '.join(found.header['partial'])}", markup=False)
        if found.excluded:
            shown = ", ".join(found.excluded[:5]) + (" …" if len(found.excluded) > 5 else "")
            console.print(f"unreadable, counted in no cell: {len(found.excluded)} ({shown})", markup=False)
        console.print(f"records: {found.folder}", markup=False)
