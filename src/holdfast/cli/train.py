"""``holdfast train``: a shipped recipe by name, or a YAML file; every value can be overridden."""

import json
import os
import signal
import typing
from argparse import SUPPRESS, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docstring_parser
from jsonargparse import ArgumentParser
from rich.console import Console

from holdfast import older_recipes
from holdfast.cli.exit_codes import EXIT_SIGNAL
from holdfast.cli.shared_options import add_dry_run, dry_run, told_how_far_off
from holdfast.errors import HoldfastError
from holdfast.io.validation import chosen_names
from holdfast.io.yaml import read_yaml
from holdfast.training import recipe as recipes
from holdfast.training.recipe_files import leaves, merge

if TYPE_CHECKING:
    from holdfast.training.loop import TrainingResult


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast train``: its own, and one per value of a recipe."""
    parser.add_argument("recipe", nargs="?", help="a shipped recipe (`holdfast list recipes`) or a YAML file")
    parser.add_argument("--out", type=Path, help="the run's folder (default: runs/RECIPE)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out, if there is one")
    parser.add_argument("--init", help="fine-tune: timm:NAME, a weight file, or run:DIR (short for --model.init)")
    parser.add_argument(
        "--init-weights",
        metavar="ema|raw",
        help="which weights of an --init that has both (default: ema; short for --model.init_weights)",
    )
    parser.add_argument(
        "--method",
        help="a comma list of robust terms with their defaults, such as afat,adl (`holdfast list methods`): short for "
        "--objective.name=robust --objective.options",
    )
    parser.add_argument("--compile", action="store_true", help="compile the model (short for --train.compile=true)")
    parser.add_argument(
        "--skip-bad", action="store_true", help="go on without unreadable images (--data.skip_bad=true)"
    )
    add_dry_run(parser)
    parser.add_argument("--processes", type=int, help="with --dry-run: forecast for so many processes, such as 8 GPUs")
    parser.usage = "holdfast train [RECIPE] [--out DIR] [--resume] [--init FROM] [--SECTION.KEY=VALUE ...]"
    add_recipe_values(parser)


def shorten_help(parser: ArgumentParser) -> None:
    """Leave the recipe's own values out of ``--help``: there are more than a hundred."""
    own = {path for path, _, _ in leaves()}
    for action in parser._actions:
        if action.dest in own:
            action.help = SUPPRESS
    parser.epilog = "every value of a recipe is an option, such as --train.epochs=10: --help-all lists them"


def add_recipe_values(parser: ArgumentParser) -> None:
    """One argument per value of a recipe."""
    groups: dict[str, Any] = {}
    for path, kind, field in leaves():
        section, _, name = path.rpartition(".")
        if section not in groups:
            groups[section] = parser.add_argument_group(f"the recipe's {section or 'own'} values")
        default = field.default_factory() if callable(field.default_factory) else field.default
        text = f"{_descriptions(section)[name]} (recipe default: {_format_default(default)})"
        # no default here: what is not given comes from the recipe
        names = [f"--{path}", *older_recipes.FLAGS.get(path, [])]
        groups[section].add_argument(*names, type=kind, default=SUPPRESS, help=text.replace("%", "%%"))


def run(arguments: Namespace) -> int:
    """Train; after a signal, say how to go on."""
    from holdfast.training.logger import append_log
    from holdfast.training.loop import train

    recipe, out = _recipe_and_folder(arguments)
    console = Console(stderr=True, quiet=os.environ.get("RANK", "0") != "0", soft_wrap=True)
    asked: dict[str, Any] = {"out": out, "overrides": _overrides(arguments), "resume": arguments.resume}
    if arguments.dry_run:
        from holdfast.training.dry_run import dry_run_report

        processes = arguments.processes if arguments.processes is not None else 1
        return dry_run("train", arguments, [dry_run_report(recipe, **asked, processes=processes)])
    if arguments.processes is not None:
        raise HoldfastError(
            f"--processes belongs to --dry-run; start the training itself with torchrun --nproc-per-node "
            f"{arguments.processes} -m holdfast train …"
        )
    try:
        with told_how_far_off("train", arguments) as account:
            result = train(recipe, show=True, **asked)
            if result.stopped_by:
                raise _Stopped
    except _Stopped:
        name = signal.Signals(result.stopped_by).name
        console.print(f"stopped by {name} after step {result.step}; go on with: holdfast train --out {out} --resume")
        return EXIT_SIGNAL + result.stopped_by
    if account.comparison and (out / "log.jsonl").exists():
        append_log(out / "log.jsonl", "forecast", step=result.step, **account.comparison)
    console.print(f"finished after {result.step} steps{_validation_score(result)}: {out}", highlight=False)
    return 0


class _Stopped(Exception):
    """The account of a run that was stopped stays open."""


def _validation_score(result: "TrainingResult") -> str:
    """What the exported weights scored in the last validation, and the best ones where those are others."""
    if result.accuracy is None:
        return ""
    told = f"; the exported weights scored {result.accuracy:.2f} % in validation"
    if result.best is not None and result.best > result.accuracy:
        told += f", the best {result.best:.2f} % (--checkpoint best)"
    return told


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
    return {key: _nest_options(value) for key, value in vars(arguments).items() if key in sections}


def _overrides(arguments: Namespace) -> dict[str, Any]:
    """The recipe values that were given, also those with a short form."""
    given = recipe_values(arguments)
    if arguments.method:
        given["objective"] = _method(arguments.method, given.get("objective", {}))
    for flag, section, key in (
        ("init", "model", "init"),
        ("init_weights", "model", "init_weights"),
        ("compile", "train", "compile"),
        ("skip_bad", "data", "skip_bad"),
    ):
        value = getattr(arguments, flag)
        if value:
            given.setdefault(section, {})[key] = value
    return given


def prepared(argv: list[str]) -> list[str]:
    """The arguments with paths into dictionaries, ``--objective.options.afat.weight=0.1``, gathered by dictionary."""
    dictionaries = [path for path, kind, _ in leaves() if typing.get_origin(kind) is dict or kind is dict]
    gathered: dict[str, dict[str, Any]] = {}
    rest = []
    words = iter(argv)
    for word in words:
        option, sign, value = word.partition("=")
        home = next((path for path in dictionaries if option.startswith(f"--{path}.")), None)
        whole = next((path for path in dictionaries if option == f"--{path}"), None)
        if home is None and whole is None:
            rest.append(word)
            continue
        text = value if sign else next(words, "")
        values = read_yaml(text, name=option)
        keys = option.removeprefix(f"--{home}.").split(".") if home else []
        for key in reversed(keys):
            values = {key: values}
        path = str(home or whole)
        if not isinstance(values, dict):
            raise HoldfastError(f"--{path} must hold keys and values, got {text!r}")
        gathered[path] = merge(gathered.get(path, {}), values)
    return [*rest, *(f"--{path}={json.dumps(values)}" for path, values in gathered.items())]


def _method(text: str, given: Mapping[str, Any]) -> dict[str, Any]:
    from holdfast.methods import TERMS

    names = chosen_names(text, TERMS, one="method", several="--method")
    if "distillation" in names and not (given.get("options") or {}).get("distillation"):
        raise HoldfastError("--method distillation needs a teacher: --objective.options.distillation.teacher=run:DIR")
    defaults: dict[str, Any] = {name: 0.5 if name == "noise2net_share" else {} for name in names}
    return {**given, "name": "robust", "options": merge(defaults, given.get("options") or {})}


def _nest_options(value: Any) -> Any:
    if not hasattr(value, "__dict__") or isinstance(value, Mapping):
        return value
    return {key: _nest_options(inner) for key, inner in vars(value).items()}


def _descriptions(section: str) -> dict[str, str]:
    kind = getattr(recipes, f"{section.rpartition('.')[2].capitalize()}Recipe")
    found = docstring_parser.parse(kind.__doc__).params
    return {value.arg_name: " ".join((value.description or "").split()).rstrip(".") for value in found}


def _format_default(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
