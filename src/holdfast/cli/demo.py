"""``holdfast demo``: everything once, on embedded data: train three models, measure, look inside, write the report."""

import os
import signal
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser
from rich.console import Console

from holdfast.cli.exit_codes import EXIT_SIGNAL, stopped_by
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.records.records import Records

MODELS = {"baseline": "digits/fan_nano", "tap_adl": "digits/fan_nano_tap_adl", "afat": "digits/fan_nano_afat"}
TITLE = "Holdfast demo: three ways to train FAN-nano"
DATA, SUITES = "digits:test", "clean,corruptions,pgd5-rspc,occlusion-random"
COLUMNS = {
    "clean": "clean",
    "mean_corruption_accuracy": "corrupted",
    "retention": "retention",
    "attack/pgd5-rspc": "PGD",
    "attack/occlusion-random": "occlusion",
}


@dataclass(frozen=True)
class Effort:
    """How much is done.

    Attributes:
        training: the images that the models learn from.
        validation: those that they are tried on after every epoch.
        epochs: of every training.
        images: of the test split, every class in its share.
        looks: images that the analyses look at.
        masks: random occlusions of each of them.
    """

    training: str = "digits"
    validation: str = "digits"
    epochs: int = 5
    images: int = 100
    looks: int = 64
    masks: int = 20


FULL = Effort()
QUICK = Effort("digits:train[0:256]", "digits:val[0:60]", epochs=2, images=20, looks=10, masks=4)


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast demo``."""
    parser.add_argument(
        "--quick", action="store_true", help="a minute and a half instead of eight; the models learn little"
    )
    parser.add_argument("--out", type=Path, help="folder for runs and report (default: demo, or demo-quick)")


def run(arguments: Namespace) -> int:
    """Do what is not done yet, then show the table and the report; stopped, the same command goes on."""
    out = _writable_folder(arguments.out or Path("demo-quick" if arguments.quick else "demo"))
    console = Console(soft_wrap=True, highlight=False)
    # before torch is imported: on cores that others use too, threads that spin while they wait double the time
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        return _demo(out, QUICK if arguments.quick else FULL, console)
    except KeyboardInterrupt as stop:
        return _stopped(stopped_by(stop), console)


def _demo(out: Path, effort: Effort, console: Console) -> int:
    from holdfast.reporting.page import report

    console.print(f"{len(MODELS)} models on scikit-learn's digits. Stopped at any moment, the same command goes on.")
    records = {}
    for number, (name, recipe) in enumerate(MODELS.items(), start=1):
        console.print(f"[bold]{number}/{len(MODELS)} {name}[/bold]")
        stopped = train_one(recipe, out / name, effort, console)
        if stopped:
            return _stopped(stopped, console)
        records[name] = _measure(out / name, effort, console)
        _look_inside(out / name, name, effort, console)
    console.print("writing the report")
    report([out / name for name in MODELS], out=out / "report.html", title=TITLE)
    console.print(table(records))
    for sentence in differences(records):
        console.print(sentence)
    console.print(f"The report: {out / 'report.html'}", markup=False)
    return 0


def train_one(recipe: str, folder: Path, effort: Effort, console: Console) -> int:
    """Train, or go on, or do nothing if it is done; returns the signal that stopped it, if any."""
    from holdfast.training.loop import train
    from holdfast.training.recipe_files import load_recipe
    from holdfast.training.run_folder import RunFolder

    data = {"train": effort.training, "val": effort.validation}
    complete = load_recipe(recipe, {"data": data, "train": {"epochs": effort.epochs}})
    RunFolder(folder).check(complete, resume=True)
    if RunFolder(folder).finished:
        console.print("  trained already")
        return 0
    console.print(f"  training: {recipe}, {effort.epochs} epochs")
    return train(complete, out=folder, resume=True, show=True).stopped_by


def _measure(folder: Path, effort: Effort, console: Console) -> "Records":
    """Evaluate; what is on disk is not measured again."""
    from holdfast.evaluation.evaluate import evaluate

    console.print(f"  measuring: {SUITES.replace(',', ', ')} on {effort.images} images")
    return evaluate(folder, DATA, SUITES, limit=effort.images)


def _look_inside(folder: Path, name: str, effort: Effort, console: Console) -> None:
    """Analyse; likewise."""
    from holdfast.analysis.analyze import analyze
    from holdfast.analysis.settings import Settings

    console.print("  looking inside: attention, noise, groups")
    settings = Settings(masks=effort.masks, occlusion_images=effort.looks, pictures=2)
    analyze(folder, DATA, settings=settings, label=name, limit=effort.looks)


def table(records: "dict[str, Records]") -> "Table":
    """The comparison: scores with the bounds of their 95 % intervals."""
    from rich.table import Table

    images = len(next(iter(records.values())).cells["clean"])
    shown = Table(
        box=None, header_style="bold", title=f"{images} test digits, percent (95 % interval)", padding=(0, 1, 0, 0)
    )
    shown.add_column("model", no_wrap=True)
    for title in COLUMNS.values():
        shown.add_column(title, justify="right", no_wrap=True)
    for name, each in records.items():
        summary = each.summary()
        scores = [summary[column] for column in COLUMNS]
        shown.add_row(name, *(f"{score.value:.1f} ({score.low:.0f}–{score.high:.0f})" for score in scores))
    return shown


def differences(records: "dict[str, Records]") -> list[str]:
    """How each model differs from the first under corruption, on the same images."""
    from holdfast.metrics.comparison import compare

    (name, first), *others = records.items()
    sentences = []
    for other, each in others:
        difference = compare(each, first).differences["mean_corruption_accuracy"]
        bounds = f"{difference.interval.low:+.1f} to {difference.interval.high:+.1f}"
        sentences.append(
            f"{other} against {name}, corrupted images: {difference.interval.value:+.1f} points ({bounds}), "
            f"{difference.verdict}"
        )
    return sentences


def _stopped(number: int, console: Console) -> int:
    console.print(f"stopped by {signal.Signals(number).name}; the same command goes on where it was")
    return EXIT_SIGNAL + number


def _writable_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HoldfastError(f"--out must be a folder we can write to, got {str(path)!r} ({error.strerror})") from error
    return path
