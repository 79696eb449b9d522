"""``holdfast demo``: everything once, on embedded data: train three models, measure, look inside, write the report."""

import os
import signal
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser
from rich.console import Console

from holdfast.cli import EXIT_SIGNAL, stopped_by
from holdfast.cli.demo_settings import DEMOS, Demo, Effort
from holdfast.errors import HoldfastError, nearest

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.records.records import Records


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast demo``."""
    parser.add_argument(
        "--task",
        default="classification",
        help="classification (digits, eight minutes), segmentation (scenes, six) or detection (scenes, seven)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a minute or two instead of six to eight; the models learn little"
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="folder for runs and report (default: demo, demo-segmentation or demo-detection; with --quick …-quick)",
    )


def run(arguments: Namespace) -> int:
    """Do what is not done yet, then show the table and the report; stopped, the same command goes on."""
    if arguments.task not in DEMOS:
        raise HoldfastError(
            f"--task must be one of {', '.join(DEMOS)}, got {arguments.task!r}{nearest(arguments.task, DEMOS)}"
        )
    demo = DEMOS[arguments.task]
    out = _writable_folder(arguments.out or Path(demo.folder + ("-quick" if arguments.quick else "")))
    console = Console(soft_wrap=True, highlight=False)
    # before torch is imported: on cores that others use too, threads that spin while they wait double the time
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        return _demo(demo, out, demo.quick if arguments.quick else demo.full, console)
    except KeyboardInterrupt as stop:
        return _exit_stopped(stopped_by(stop), console)


def _demo(demo: Demo, out: Path, effort: Effort, console: Console) -> int:
    from holdfast.reporting.page import report

    console.print(f"{demo.words}. Stopped at any moment, the same command goes on.")
    records = {}
    for number, (name, (recipe, overrides)) in enumerate(demo.models.items(), start=1):
        console.print(f"[bold]{number}/{len(demo.models)} {name}[/bold]")
        stopped = train_one(recipe, out / name, effort, console, overrides=overrides)
        if stopped:
            return _exit_stopped(stopped, console)
        records[name] = _measure(demo, out / name, effort, console)
        if demo.analyses != "":
            _look_inside(demo, out / name, name, effort, console)
    console.print("writing the report")
    report([out / name for name in demo.models], out=out / "report.html", title=demo.title)
    console.print(table(demo, records))
    for sentence in differences(demo, records):
        console.print(sentence)
    console.print(f"The report: {out / 'report.html'}", markup=False)
    return 0


def train_one(
    recipe: str, folder: Path, effort: Effort, console: Console, *, overrides: Mapping[str, Any] | None = None
) -> int:
    """Train, or go on, or do nothing if it is done; returns the signal that stopped it, if any."""
    from holdfast.training.loop import train
    from holdfast.training.recipe_files import load_recipe
    from holdfast.training.run_folder import RunFolder

    data = {"train": effort.training, "val": effort.validation}
    complete = load_recipe(load_recipe(recipe, overrides), {"data": data, "train": {"epochs": effort.epochs}})
    RunFolder(folder).check(complete, resume=True)
    if RunFolder(folder).finished:
        console.print("  trained already")
        return 0
    console.print(f"  training: {recipe}, {effort.epochs} epochs")
    return train(complete, out=folder, resume=True, show=True).stopped_by


def _measure(demo: Demo, folder: Path, effort: Effort, console: Console) -> "Records":
    """Evaluate; what is on disk is not measured again."""
    from holdfast.evaluation.config import ComputeConfig
    from holdfast.evaluation.evaluate import evaluate

    console.print(f"  measuring: {demo.suites.replace(',', ', ')} on {effort.images} images")
    kept = ComputeConfig(keep_examples=effort.examples)
    return evaluate(folder, demo.data, demo.suites, limit=effort.images, compute=kept)


def _look_inside(demo: Demo, folder: Path, name: str, effort: Effort, console: Console) -> None:
    """Analyse; likewise."""
    from holdfast.analysis.analyze import analyze
    from holdfast.analysis.settings import Settings

    console.print("  looking inside: attention, noise, groups")
    settings = Settings(masks=effort.masks, occlusion_images=effort.looks, pictures=2)
    analyze(folder, demo.data, demo.analyses, settings=settings, label=name, limit=effort.looks)


def table(demo: Demo, records: "dict[str, Records]") -> "Table":
    """The comparison: scores with the bounds of their 95 % intervals."""
    from rich.table import Table

    images = len(next(iter(records.values())).cells["clean"])
    shown = Table(
        box=None, header_style="bold", title=f"{images} {demo.tested}, percent (95 % interval)", padding=(0, 1, 0, 0)
    )
    shown.add_column("model", no_wrap=True)
    for title in demo.columns.values():
        shown.add_column(title, justify="right", no_wrap=True)
    for name, each in records.items():
        summary = each.summary()
        scores = [summary[column] for column in demo.columns]
        shown.add_row(name, *(f"{score.value:.1f} ({score.low:.0f}–{score.high:.0f})" for score in scores))
    return shown


def differences(demo: Demo, records: "dict[str, Records]") -> list[str]:
    """How each model differs from the first under corruption, on the same images."""
    from holdfast.metrics.comparison import compare

    (name, first), *others = records.items()
    sentences = []
    for other, each in others:
        difference = compare(each, first).differences[demo.compared]
        bounds = f"{difference.interval.low:+.1f} to {difference.interval.high:+.1f}"
        sentences.append(
            f"{other} against {name}, corrupted images: {difference.interval.value:+.1f} points ({bounds}), "
            f"{difference.verdict}"
        )
    return sentences


def _exit_stopped(number: int, console: Console) -> int:
    console.print(f"stopped by {signal.Signals(number).name}; the same command goes on where it was")
    return EXIT_SIGNAL + number


def _writable_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HoldfastError(f"--out must be a folder we can write to, got {str(path)!r} ({error.strerror})") from error
    return path
