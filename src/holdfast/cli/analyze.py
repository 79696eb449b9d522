"""``holdfast analyze``: see why a model holds or fails."""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser
from rich.markup import escape
from rich.table import Table

from holdfast.analysis.figure_groups import figure_pages
from holdfast.analysis.registry import ANALYSES, all_settings, headlines
from holdfast.analysis.results import AnalysisResult, load_results
from holdfast.analysis.settings import Settings
from holdfast.cli.console import message_console, print_table
from holdfast.cli.shared_options import (
    add_preprocessing,
    model_file_name,
    own_data,
    protocol_of,
    run_folder,
    with_checkpoint,
)
from holdfast.errors import HoldfastError
from holdfast.plotting.files import name_model, parse_formats, save_figure
from holdfast.registry import model_spec

if TYPE_CHECKING:
    from rich.console import Console

Stored = tuple[Path, list[AnalysisResult]]  # a folder and the results in it


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast analyze``."""
    known = "; ".join(f"{name}: {analysis.line}" for name, analysis in ANALYSES.items())
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="a run's folder, timm:NAME[@FILE], local-dir:DIR, python:module:function",
    )
    parser.add_argument("--checkpoint", help="of runs: best, last or a weight file (default: the exported weights)")
    parser.add_argument("--data", help="such as folder:DIR (default: the run's validation data)")
    parser.add_argument("--only", default=",".join(ANALYSES), help=f"comma-separated analyses (default: all); {known}")
    parser.add_argument("--limit", type=int, default=256, help="number of images, stratified by class; 0 for all")
    for setting in all_settings().values():
        parser.add_argument(
            setting.flag, dest=setting.name, type=setting.kind, default=setting.written, help=setting.line
        )
    add_preprocessing(parser)
    parser.add_argument("--corruptor", type=Path, help="a corruption model's file (default: the run's own, if any)")
    parser.add_argument("--seed", type=int, default=0, help="random seed of corruptions, masks and noise")
    parser.add_argument("--batch-size", type=int, default=32, help="images per forward pass; does not change results")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 …")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder in which analysis/ is written (default: the run's, or runs/MODEL); for several models, the folder "
        "for the figures that compare them (default: comparison)",
    )
    parser.add_argument("--fresh", action="store_true", help="recompute stored results")
    parser.add_argument("--figures", default="png", help="comma-separated formats: png (300 dpi), pdf, svg")
    parser.add_argument("--redraw", action="store_true", help="only redraw the figures from stored results")


def run(arguments: Namespace) -> None:
    """Analyse every model, then draw its figures and the comparison of all models."""
    formats = parse_formats(arguments.figures)
    console = message_console(stderr=True)
    if arguments.redraw:
        alone = arguments.out if len(arguments.models) == 1 else None  # of several, --out is the comparison's
        found = _distinguish_results(
            [stored for model in arguments.models for stored in _stored_results(str(alone or model))]
        )
    else:
        found = list(_analyses(arguments, console))
    print_table(_table(found))
    for folder, results in found:
        count = _draw(results, folder / "figures", formats)
        console.print(
            f"{results[0].label}: {count} figure{'' if count == 1 else 's'} in {folder / 'figures'}", markup=False
        )
    if len(arguments.models) > 1:
        _compare(
            [result for _, results in found for result in results],
            arguments.out or Path("comparison"),
            console,
            formats,
        )


def _compare(results: list[AnalysisResult], target: Path, console: "Console", formats: tuple[str, ...]) -> None:
    """Draw the figures of all models side by side, for results of the same images, seed and settings."""
    count = _draw(results, target, formats)
    if count:
        console.print(f"{count} figures of all models side by side in {target}", markup=False)
    else:
        console.print("no figures compare the models: their results differ in images, seeds or settings", markup=False)


def _analyses(arguments: Namespace, console: "Console") -> Iterator[Stored]:
    from holdfast.analysis.analyze import analyze

    settings, labels, alone = _settings(arguments), _labels(arguments.models), len(arguments.models) == 1
    for model, label in zip(arguments.models, labels, strict=True):
        own_folder = None if run_folder(model) else Path("runs") / label
        analysis = analyze(
            with_checkpoint(model, arguments.checkpoint),
            arguments.data or own_data(model, command="analyze"),
            arguments.only,
            settings=settings,
            out=(arguments.out if alone else None) or own_folder,
            label=label,
            limit=arguments.limit or None,
            protocol=protocol_of(arguments),
            corruptor=arguments.corruptor,
            seed=arguments.seed,
            batch_size=arguments.batch_size,
            device=arguments.device,
            fresh=arguments.fresh,
            show=True,
        )
        for name, why in analysis.skipped.items():
            console.print(f"{label}: {name} is skipped: {why}", markup=False)
        assert analysis.folder is not None
        yield analysis.folder, list(analysis.results.values())


def _settings(arguments: Namespace) -> Settings:
    chosen = {name: setting.read(getattr(arguments, name)) for name, setting in all_settings().items()}
    return Settings(**{name: value for name, value in chosen.items() if value is not None})


def _labels(models: list[str]) -> list[str]:
    """Short names for figures and folders; the whole spec where two would be the same."""
    short = [_label(model) for model in models]
    return [
        name if short.count(name) == 1 else model_file_name(model.replace(":", "-"))
        for name, model in zip(short, models, strict=True)
    ]


def _label(model: str) -> str:
    folder = run_folder(model)
    return folder.resolve().name if folder else model_file_name(model)


def _stored_results(model: str) -> list[Stored]:
    root = model_spec(model).folder or Path(model).expanduser()
    folders = sorted({path.parent for path in root.rglob("*.safetensors") if path.stem in ANALYSES})
    if not folders:
        raise HoldfastError(f"--redraw needs stored results, but there are none below {str(root)!r}")
    return [(folder, load_results(folder)) for folder in folders]


def _distinguish_results(found: list[Stored]) -> list[Stored]:
    """Add the run's folder to the label of results whose runs share a name."""
    runs = {(results[0].label, folder.parent.parent) for folder, results in found}
    names = [label for label, _ in runs]
    return [
        (
            folder,
            [_rename_result(each, folder.parent.parent) if names.count(each.label) > 1 else each for each in results],
        )
        for folder, results in found
    ]


def _rename_result(result: AnalysisResult, run: Path) -> AnalysisResult:
    return replace(result, header={**result.header, "label": f"{result.label} ({run})"})


def _table(found: list[Stored]) -> Table:
    """The headline numbers, one column per model."""
    numbers = [headlines(results) for _, results in found]
    table = Table("", *(escape(results[0].label) for _, results in found), box=None, header_style="bold")
    for name in dict.fromkeys(name for each in numbers for name in each):
        table.add_row(name, *(f"{each[name]:.4g}" if name in each else "–" for each in numbers))
    return table


def _draw(results: list[AnalysisResult], folder: Path, formats: tuple[str, ...]) -> int:
    """Save one figure per page of the results and return how many."""
    single = results[0].label if len({result.label for result in results}) == 1 else ""
    pages = list(figure_pages(results))
    for name, draw in pages:
        save_figure(name_model(draw(), single) if single else draw(), folder / name, formats=formats)
    return len(pages)
