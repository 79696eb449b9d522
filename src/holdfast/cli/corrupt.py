"""``holdfast corrupt``: write corrupted copies of a folder of images."""

import re
import sys
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser

from holdfast.cli.shared_options import add_cluster, add_dry_run, cluster_of, dry_run, print_dry_run_comparison
from holdfast.errors import HoldfastError
from holdfast.io.validation import counted
from holdfast.runtime.cores import core_count
from holdfast.runtime.progress import ProgressLine

if TYPE_CHECKING:
    from holdfast.corruptions.corrupt_folder import Outcome


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast corrupt``."""
    parser.add_argument("source", metavar="SRC", help="folder of images, searched recursively")
    parser.add_argument("target", metavar="DST", help="folder for the results: DST/<kind>/<severity>/<path as in SRC>")
    parser.add_argument(
        "--kinds",
        default="standard",
        help="comma-separated kinds or groups (noise, blur, weather, digital), or all (19), standard, extra, own, "
        "c-bar, imagenet-c-bar, cifar-c-bar",
    )
    parser.add_argument("--severity", default="1-5", help="such as 3, 1-5 or 1,3,5")
    parser.add_argument("--preset", default="any", help="any (all sizes), imagenet, inception, tiny or cifar")
    parser.add_argument("--format", default="png", help="png, or jpeg:QUALITY; ImageNet-C is jpeg:85")
    parser.add_argument("--workers", type=int, default=0, help="worker processes; 0 means one per core")
    parser.add_argument(
        "--seed", type=int, default=0, help="random seed; every draw depends on it and the file's path alone"
    )
    parser.add_argument("--frost", metavar="FOLDER", help="folder of the published frost photographs, or 'procedural'")
    parser.add_argument("--exif", default="ignore", help="ignore or apply EXIF orientation")
    add_dry_run(parser)
    add_cluster(parser, task="batches of images")


def run(arguments: Namespace) -> int:
    """Corrupt the folder with a progress line, then list the images that could not be read."""
    from holdfast.corruptions.corrupt_folder import FolderSettings, KindAtSeverity, check_folder, corrupt_folder
    from holdfast.corruptions.corrupt_folder_ray import run_on_ray
    from holdfast.corruptions.dry_run import dry_run_report
    from holdfast.corruptions.severities import preset_of, select

    severities = parse_severities(arguments.severity)
    cells = [KindAtSeverity(kind, severity) for kind in select(arguments.kinds) for severity in severities]
    quality = parse_format(arguments.format)
    settings = FolderSettings(
        arguments.seed, preset_of(arguments.preset).name, quality, arguments.frost, arguments.exif
    )
    source, target = Path(arguments.source), Path(arguments.target)
    if arguments.workers < 0:
        raise HoldfastError(f"workers: expected 1 or more, got {arguments.workers}")
    workers = arguments.workers or core_count()
    cluster = cluster_of(arguments)
    if arguments.dry_run:
        return dry_run(
            "corrupt", arguments, [dry_run_report(source, target, cells=cells, settings=settings, workers=workers)]
        )
    images = check_folder(source, target, settings)
    total = len(images) * len(cells)
    header = f"corrupting {source} into {target}: {counted(len(images), 'image')} × {counted(len(cells), 'cell')}"
    with (
        print_dry_run_comparison("corrupt", arguments),
        ProgressLine("corrupting", total=total, unit="images", show=True, header=header) as line,
    ):

        def advance(_outcome: "Outcome") -> None:
            line.advance(len(cells))

        runner = partial(run_on_ray, cluster=cluster) if cluster else None
        outcomes = corrupt_folder(
            source, target, cells=cells, settings=settings, workers=workers, on_outcome=advance, run=runner
        )
    return _report(outcomes, target, exif=arguments.exif)


def parse_severities(text: str) -> list[int]:
    """Parse ``1-5``, ``3`` or ``1,3,5`` into a sorted list."""
    chosen: set[int] = set()
    for part in str(text).split(","):
        match = re.fullmatch(r"\s*([1-5])\s*(?:-\s*([1-5])\s*)?", part)
        if not match or (match[2] and match[2] < match[1]):
            raise HoldfastError(f"severity: expected whole numbers from 1 to 5 such as 3, 1-5 or 1,3,5, got {text!r}")
        chosen |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return sorted(chosen)


def parse_format(text: str) -> int | None:
    """Return the JPEG quality of ``jpeg:85``; None for ``png``."""
    if text == "png":
        return None
    match = re.fullmatch(r"jpe?g(?::(\d+))?", text)
    if not match or not 1 <= int(match[1] or 85) <= 100:
        raise HoldfastError(f"format: expected png or jpeg:QUALITY with a quality from 1 to 100, got {text!r}")
    return int(match[1] or 85)


def _report(outcomes: "list[Outcome]", target: Path, *, exif: str) -> int:
    from holdfast.io.images import turned_warning

    failed = [outcome for outcome in outcomes if outcome.error]
    written, found = (sum(getattr(outcome, name) for outcome in outcomes) for name in ("written", "found"))
    already = f", {found} existed already" if found else ""
    print(f"{written} files written to {target}{already}")
    if warning := turned_warning(sum(outcome.turned for outcome in outcomes), exif=exif):
        print(warning, file=sys.stderr)
    if failed:
        print(f"{len(failed)} of {len(outcomes)} images could not be corrupted:", file=sys.stderr)
        for outcome in failed:
            print(f"  {outcome.relative}: {outcome.error}", file=sys.stderr)
    return 1 if failed else 0
