"""``holdfast analyze``: see why a model holds or fails."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser
from rich.markup import escape

from holdfast.analysis.results import KINDS, Result, load_results
from holdfast.cli.run_folders import model_file_name, own_data, run_folder
from holdfast.errors import HoldfastError
from holdfast.model_names import model_spec
from holdfast.names import comma_list

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from holdfast.analysis.settings import Settings

Stored = tuple[Path, list[Result]]  # a folder and the results in it


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast analyze``."""
    known = "; ".join(f"{name}: {line}" for name, line in KINDS.items())
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="a run's folder, timm:NAME[@FILE], local-dir:DIR, python:module:function",
    )
    parser.add_argument("--data", help="such as folder:DIR (default: what the run was validated on)")
    parser.add_argument("--only", default=",".join(KINDS), help=f"comma list of analyses; {known}")
    parser.add_argument("--cells", default="gaussian_noise/3", help="comma list of corruption cells such as fog/3")
    parser.add_argument("--limit", type=int, default=256, help="images to look at; 0 for all")
    parser.add_argument("--masks", type=int, default=100, help="random occlusion masks per image")
    parser.add_argument("--mask-images", type=int, default=64, help="images that are occluded so often")
    parser.add_argument("--ratio", type=float, default=0.1, help="share of the patches that a mask occludes")
    parser.add_argument("--patch-size", type=int, help="side of an occluded patch (default: 16, less for small images)")
    parser.add_argument("--top", type=int, default=5, help="tokens that count as the most attended")
    parser.add_argument("--epsilon", type=float, default=0.01, help="significant eigenvalues: above this · the largest")
    parser.add_argument("--noise-std", type=float, default=1.0, help="deviation of the noise on normalised images")
    parser.add_argument("--modules", default="", help="comma list of modules for noise decay and grouping")
    parser.add_argument("--clusters", type=int, default=4, help="groups of tokens, 2 to 8")
    parser.add_argument("--pictures", type=int, default=4, help="images that pictures show")
    parser.add_argument("--query", default="0.5,0.5", help="row and column of the query, as shares of the image")
    parser.add_argument("--size", type=int, help="image size, such as 448 (default: the model's own)")
    parser.add_argument("--corruptor", type=Path, help="a corruption model's file (default: the run's own, if any)")
    parser.add_argument("--seed", type=int, default=0, help="of corruptions, masks and noise")
    parser.add_argument("--batch-size", type=int, default=32, help="images per forward pass; does not change results")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 …")
    parser.add_argument(
        "--out",
        type=Path,
        help="the folder that gets analysis/ (default: the run's, or runs/MODEL); of several models, the folder of the "
        "figures that show them side by side (default: comparison)",
    )
    parser.add_argument("--fresh", action="store_true", help="compute again what is already there")
    parser.add_argument("--redraw", action="store_true", help="only draw the figures again, from stored results")


def run(arguments: Namespace) -> None:
    """Analyse every model, draw its figures, and those that compare."""
    from rich.console import Console

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    if arguments.redraw:
        found = [stored for model in arguments.models for stored in _stored(model)]
    else:
        found = list(_analyses(arguments, console))
    Console(soft_wrap=True).print(_table(found))
    for folder, results in found:
        count = _draw(results, folder / "figures")
        console.print(f"{results[0].label}: {count} figures in {folder / 'figures'}", markup=False)
    if len(arguments.models) > 1:
        target = arguments.out or Path("comparison")
        count = _draw([result for _, results in found for result in results], target)
        console.print(f"{count} figures of all models side by side in {target}", markup=False)


def _analyses(arguments: Namespace, console: "Console") -> Iterator[Stored]:
    from holdfast.analysis.analyze import analyze

    settings, labels, alone = _settings(arguments), _labels(arguments.models), len(arguments.models) == 1
    for model, label in zip(arguments.models, labels, strict=True):
        own_folder = None if run_folder(model) else Path("runs") / label
        analysis = analyze(
            model,
            arguments.data or own_data(model, command="analyze"),
            arguments.only,
            settings=settings,
            out=(arguments.out if alone else None) or own_folder,
            label=label,
            limit=arguments.limit or None,
            size=arguments.size,
            corruptor=arguments.corruptor,
            seed=arguments.seed,
            batch_size=arguments.batch_size,
            device=arguments.device,
            fresh=arguments.fresh,
        )
        for name, why in analysis.skipped.items():
            console.print(f"{label}: {name} is left out: {why}", markup=False)
        assert analysis.folder is not None
        yield analysis.folder, list(analysis.results.values())


def _settings(arguments: Namespace) -> "Settings":
    from holdfast.analysis.settings import Settings

    return Settings(
        cells=comma_list(arguments.cells),
        masks=arguments.masks,
        occlusion_images=arguments.mask_images,
        ratio=arguments.ratio,
        patch_size=arguments.patch_size,
        top=arguments.top,
        epsilon=arguments.epsilon,
        noise_std=arguments.noise_std,
        modules=comma_list(arguments.modules),
        clusters=arguments.clusters,
        pictures=arguments.pictures,
        query=_query(arguments.query),
    )


def _query(text: str) -> tuple[float, float]:
    try:
        row, column = (float(word) for word in text.split(","))
    except ValueError as error:
        raise HoldfastError(f"query must be two shares such as 0.5,0.5, row and column, got {text!r}") from error
    return row, column


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


def _stored(model: str) -> list[Stored]:
    root = model_spec(model).folder or Path(model).expanduser()
    folders = sorted({path.parent for path in root.rglob("*.safetensors") if path.stem in KINDS})
    if not folders:
        raise HoldfastError(f"--redraw needs stored results, but there are none below {str(root)!r}")
    return [(folder, load_results(folder)) for folder in folders]


def _table(found: list[Stored]) -> "Table":
    """The headline numbers, one column per model."""
    from rich.table import Table

    from holdfast.analysis.summary import headlines

    numbers = [headlines(results) for _, results in found]
    table = Table("", *(escape(results[0].label) for _, results in found), box=None, header_style="bold")
    for name in dict.fromkeys(name for each in numbers for name in each):
        table.add_row(name, *(f"{each[name]:.4g}" if name in each else "–" for each in numbers))
    return table


def _draw(results: list[Result], folder: Path) -> int:
    """Write an album's figures as PNG; returns how many."""
    from holdfast.reporting.analysis_album import album
    from holdfast.reporting.figure_parts import save_png

    return sum(save_png(draw(), folder / f"{name}.png") is not None for name, draw in album(results))
