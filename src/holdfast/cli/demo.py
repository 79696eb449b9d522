"""``holdfast demo``: train, evaluate, analyse and compare three models on embedded data."""

import os
import signal
from argparse import Namespace
from collections.abc import Mapping
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser
from rich.console import Console
from rich.table import Table

from holdfast.analysis.settings import Settings
from holdfast.cli import EXIT_SIGNAL, stopped_by
from holdfast.cli.console import message_console, print_table
from holdfast.cli.demo_settings import DEMOS, Demo, Effort
from holdfast.errors import HoldfastError, nearest
from holdfast.training.recipe_files import load_recipe

if TYPE_CHECKING:
    from holdfast.metrics.summary import Score
    from holdfast.records.records import Records


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast demo``."""
    parser.add_argument(
        "--task",
        default="classification",
        help="classification (digits, eight minutes), segmentation (scenes, six) or detection (scenes, seven)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="take one or two minutes instead of six to eight; the models learn little"
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="folder for runs and report (default: demo, demo-segmentation or demo-detection; with --quick …-quick)",
    )


def run(arguments: Namespace) -> int:
    """Run the missing steps of the demo, then print the table and write the report; resumable."""
    if arguments.task not in DEMOS:
        raise HoldfastError(
            f"--task must be one of {', '.join(DEMOS)}, got {arguments.task!r}{nearest(arguments.task, DEMOS)}"
        )
    demo = DEMOS[arguments.task]
    out = _writable_folder(arguments.out or Path(demo.folder + ("-quick" if arguments.quick else "")))
    console = message_console()
    # before torch is imported: on cores that others use too, threads that spin while they wait double the time
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        return _demo(demo, out, demo.quick if arguments.quick else demo.full, console)
    except KeyboardInterrupt as stop:
        return _exit_stopped(stopped_by(stop), console)


def _demo(demo: Demo, out: Path, effort: Effort, console: Console) -> int:
    from holdfast.reporting.page import report

    console.print(f"{demo.description}. If it is interrupted, run the same command again to resume.")
    records = {}
    for number, (name, (recipe, overrides)) in enumerate(demo.models.items(), start=1):
        console.print(f"[bold]{number}/{len(demo.models)} {name}[/bold]")
        stopped = train_one(recipe, out / name, effort, console, overrides=overrides)
        if stopped:
            return _exit_stopped(stopped, console)
        records[name] = _measure(demo, out / name, effort, console)
        if demo.analyses != "":
            _analyze(demo, out / name, name, effort, console)
    console.print("writing the report")
    report([out / name for name in demo.models], out=out / "report.html", title=demo.title)
    print_table(table(demo, records))
    for sentence in nothing_found(demo, records, effort) or differences(demo, records):
        console.print(sentence)
    console.print(f"report: {out / 'report.html'}", markup=False)
    return 0


def train_one(
    recipe: str, folder: Path, effort: Effort, console: Console, *, overrides: Mapping[str, Any] | None = None
) -> int:
    """Train or resume one model unless it is finished; return the signal that stopped it, or 0."""
    from holdfast.training.loop import train
    from holdfast.training.run_folder import RunFolder

    data = {"train": effort.training, "val": effort.validation}
    complete = load_recipe(load_recipe(recipe, overrides), {"data": data, "train": {"epochs": effort.epochs}})
    RunFolder(folder).check(complete, resume=True)
    if RunFolder(folder).finished:
        console.print("  already trained")
        return 0
    console.print(f"  training: {recipe}, {effort.epochs} epoch{'' if effort.epochs == 1 else 's'}")
    return train(complete, out=folder, resume=True, show=True).stopped_by


def _measure(demo: Demo, folder: Path, effort: Effort, console: Console) -> "Records":
    """Evaluate one model; units on disk are not measured again."""
    from holdfast.evaluation.config import ComputeConfig
    from holdfast.evaluation.evaluate import evaluate

    console.print(f"  evaluating: {demo.suites.replace(',', ', ')} on {effort.images} images")
    compute = ComputeConfig(keep_examples=effort.examples)
    return evaluate(folder, demo.data, demo.suites, limit=effort.images, compute=compute)


def _analyze(demo: Demo, folder: Path, name: str, effort: Effort, console: Console) -> None:
    """Analyse one model; stored results are not computed again."""
    from holdfast.analysis.analyze import analyze

    console.print("  analysing: attention, noise, groups")
    settings = Settings(masks=effort.masks, occlusion_images=effort.analysis_images, pictures=2)
    analyze(folder, demo.data, demo.analyses, settings=settings, label=name, limit=effort.analysis_images)


def table(demo: Demo, records: "dict[str, Records]") -> Table:
    """Build the comparison table: scores with the bounds of their 95 % intervals."""
    images = len(next(iter(records.values())).cells["clean"])
    comparison = Table(
        box=None, header_style="bold", title=f"{images} {demo.tested}, percent (95 % interval)", padding=(0, 1, 0, 0)
    )
    comparison.add_column("model", no_wrap=True)
    for title in demo.columns.values():
        comparison.add_column(title, justify="right", no_wrap=True)
    for name, each in records.items():
        summary = each.summary()
        comparison.add_row(name, *(_with_bounds(summary[column]) for column in demo.columns))
    return comparison


def _with_bounds(score: "Score") -> str:
    """A score with the bounds of its interval, as far as there are any; five of them fit 80 columns."""
    if isnan(score.value):
        return "–"
    bounds = "" if isnan(score.low) else f" ({score.low:.0f}–{score.high:.0f})"
    return f"{score.value:.1f}{bounds}"


def nothing_found(demo: Demo, records: "dict[str, Records]", effort: Effort) -> list[str]:
    """Why all scores are 0, if they are: models that have hardly been trained find nothing."""
    values = [each.summary(intervals=False)[column].value for each in records.values() for column in demo.columns]
    if any(value > 0 for value in values):
        return []
    passes = "one pass" if effort.epochs == 1 else f"{effort.epochs} passes"
    return [
        f"All scores are 0 (– where 0 is divided by 0), because {passes} over the training images of --quick "
        f"({effort.training}) cannot teach these models to find anything: it only shows that every step works. "
        "Without --quick they learn, in minutes."
    ]


def differences(demo: Demo, records: "dict[str, Records]") -> list[str]:
    """Paired differences of each model from the first on the same corrupted images, one sentence each."""
    from holdfast.metrics.comparison import compare

    (name, first), *others = records.items()
    sentences = []
    for other, each in others:
        difference = compare(each, first).differences[demo.compared]
        points = f"{difference.interval.value:+.1f} points ({difference.interval.bounds('+.1f')})"
        sentences.append(f"{other} vs. {name} under corruption: {points}, {difference.verdict}")
    return sentences


def _exit_stopped(number: int, console: Console) -> int:
    console.print(f"stopped by {signal.Signals(number).name}; run the same command again to resume")
    return EXIT_SIGNAL + number


def _writable_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HoldfastError(f"--out must be a writable folder, got {str(path)!r} ({error.strerror})") from error
    return path
