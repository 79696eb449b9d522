"""``holdfast train``: a shipped recipe by name, or a YAML file; every value can be overridden."""

import os
import signal
from argparse import SUPPRESS, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import docstring_parser
from jsonargparse import ArgumentParser
from rich.console import Console

from holdfast import older_recipes
from holdfast.cli.exit_codes import EXIT_SIGNAL
from holdfast.errors import HoldfastError
from holdfast.training import recipe as recipes
from holdfast.training.recipe_files import leaves


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast train``: its own, and one per value of a recipe."""
    parser.add_argument("recipe", nargs="?", help="a shipped recipe (`holdfast list recipes`) or a YAML file")
    parser.add_argument("--out", type=Path, help="the run's folder (default: runs/RECIPE)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out, if there is one")
    parser.add_argument("--init", help="fine-tune: timm:NAME, a weight file, or run:DIR (short for --model.init)")
    parser.add_argument("--compile", action="store_true", help="compile the model (short for --train.compile=true)")
    parser.add_argument(
        "--skip-bad", action="store_true", help="go on without unreadable images (--data.skip_bad=true)"
    )
    parser.usage = "holdfast train [RECIPE] [--out DIR] [--resume] [--init FROM] [--SECTION.KEY=VALUE ...]"
    add_recipe_values(parser)


def add_recipe_values(parser: ArgumentParser) -> None:
    """One argument per value of a recipe."""
    groups: dict[str, Any] = {}
    for path, kind, field in leaves():
        section, _, name = path.rpartition(".")
        if section not in groups:
            groups[section] = parser.add_argument_group(f"the recipe's {section or 'own'} values")
        default = field.default_factory() if callable(field.default_factory) else field.default
        text = f"{_descriptions(section)[name]} (recipe default: {_shown(default)})"
        # no default here: what is not given comes from the recipe
        names = [f"--{path}", *older_recipes.FLAGS.get(path, [])]
        groups[section].add_argument(*names, type=kind, default=SUPPRESS, help=text.replace("%", "%%"))


def run(arguments: Namespace) -> int:
    """Train; after a signal, say how to go on."""
    from holdfast.training.loop import train

    recipe, out = _recipe_and_folder(arguments)
    console = Console(stderr=True, quiet=os.environ.get("RANK", "0") != "0", soft_wrap=True)
    result = train(recipe, out=out, overrides=_overrides(arguments), resume=arguments.resume)
    if result.stopped_by:
        name = signal.Signals(result.stopped_by).name
        console.print(f"stopped by {name} after step {result.step}; go on with: holdfast train --out {out} --resume")
        return EXIT_SIGNAL + result.stopped_by
    score = f", best validation score {result.best:.2f} %" if result.best is not None else ""
    console.print(f"finished after {result.step} steps{score}: {out}", highlight=False)
    return 0


def _recipe_and_folder(arguments: Namespace) -> tuple[str | Path, Path]:
    """What to train and where; a run that goes on brings its own recipe."""
    if arguments.recipe is not None:
        stem = str(arguments.recipe).removesuffix(".yaml").strip("/").replace("/", "-")
        return arguments.recipe, arguments.out or Path("runs") / stem
    if not (arguments.resume and arguments.out):
        raise HoldfastError("holdfast train needs a recipe, or --out DIR --resume to go on with a run; got neither")
    own = arguments.out / "recipe.yaml"
    if not own.exists():
        raise HoldfastError(f"--out must be the folder of a run to go on with it, got {str(arguments.out)!r}")
    return own, arguments.out


def recipe_values(arguments: Namespace) -> dict[str, Any]:
    """The recipe values that were given, nested as in YAML."""
    sections = {path.split(".")[0] for path, _, _ in leaves()}
    return {key: _nested(value) for key, value in vars(arguments).items() if key in sections}


def _overrides(arguments: Namespace) -> dict[str, Any]:
    """The recipe values that were given, also those with a short form."""
    given = recipe_values(arguments)
    for flag, section, key in (
        ("init", "model", "init"),
        ("compile", "train", "compile"),
        ("skip_bad", "data", "skip_bad"),
    ):
        value = getattr(arguments, flag)
        if value:
            given.setdefault(section, {})[key] = value
    return given


def _nested(value: Any) -> Any:
    if not hasattr(value, "__dict__") or isinstance(value, Mapping):
        return value
    return {key: _nested(inner) for key, inner in vars(value).items()}


def _descriptions(section: str) -> dict[str, str]:
    kind = getattr(recipes, f"{section.rpartition('.')[2].capitalize()}Recipe")
    return {p.arg_name: (p.description or "").rstrip(".") for p in docstring_parser.parse(kind.__doc__).params}


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
