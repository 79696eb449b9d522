"""``holdfast train``: train a model from a shipped recipe or a YAML file; every value can be overridden."""

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

from holdfast.cli import EXIT_SIGNAL
from holdfast.cli.console import message_console
from holdfast.cli.shared_options import add_dry_run, dry_run, print_dry_run_comparison
from holdfast.errors import HoldfastError
from holdfast.io.yaml import read_yaml
from holdfast.training import recipe as recipes
from holdfast.training.method_options import method_values
from holdfast.training.recipe_files import leaves, merge

if TYPE_CHECKING:
    from holdfast.training.loop import TrainingResult


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast train``: its own, and one per value of a recipe."""
    parser.add_argument("recipe", nargs="?", help="a shipped recipe (`holdfast list recipes`) or a YAML file")
    parser.add_argument("--out", type=Path, help="the run's folder (default: runs/RECIPE)")
    parser.add_argument("--resume", action="store_true", help="resume the run in --out, if there is one")
    parser.add_argument("--init", help="fine-tune: timm:NAME, a weight file, or run:DIR (short for --model.init)")
    parser.add_argument(
        "--init-weights",
        metavar="ema|raw",
        help="averaged or plain weights of --init (default: ema; short for --model.init_weights)",
    )
    parser.add_argument(
        "--method",
        help="methods with their defaults, several with commas, such as augmix,sam (`holdfast list methods`): short "
        "for the recipe values that each stands for",
    )
    parser.add_argument("--compile", action="store_true", help="compile the model (short for --train.compile=true)")
    parser.add_argument(
        "--skip-bad", action="store_true", help="skip unreadable images (short for --data.skip_bad=true)"
    )
    add_dry_run(parser)
    parser.add_argument("--processes", type=int, help="with --dry-run: forecast for so many processes, such as 8 GPUs")
    parser.usage = (
        "holdfast train [RECIPE] [--out DIR] [--resume] [--init FROM]\n                      [--SECTION.KEY=VALUE ...]"
    )
    add_recipe_values(parser)


def shorten_help(parser: ArgumentParser) -> None:
    """Hide the recipe values in ``--help``: there are more than a hundred."""
    own = {path for path, _, _ in leaves()}
    for action in parser._actions:
        if action.dest in own:
            action.help = SUPPRESS
    parser.epilog = "every value of a recipe is an option, such as --train.epochs=10; --help-all lists them"


def add_recipe_values(parser: ArgumentParser) -> None:
    """Add one argument per recipe value."""
    groups: dict[str, Any] = {}
    for path, kind, field in leaves():
        section, _, name = path.rpartition(".")
        if section not in groups:
            groups[section] = parser.add_argument_group(f"the recipe's {section or 'own'} values")
        default = field.default_factory() if callable(field.default_factory) else field.default
        text = f"{_descriptions(section)[name]} (recipe default: {_format_default(default)})"
        # no default here: values that are not given come from the recipe
        groups[section].add_argument(f"--{path}", type=kind, default=SUPPRESS, help=text.replace("%", "%%"))


def run(arguments: Namespace) -> int:
    """Train; after a signal, print how to resume."""
    from holdfast.training.logger import append_log
    from holdfast.training.loop import train

    recipe, out = _recipe_and_folder(arguments)
    console = message_console(stderr=True, quiet=os.environ.get("RANK", "0") != "0")
    options: dict[str, Any] = {"out": out, "overrides": _overrides(arguments), "resume": arguments.resume}
    if arguments.dry_run:
        from holdfast.training.dry_run import dry_run_report

        processes = arguments.processes if arguments.processes is not None else 1
        return dry_run("train", arguments, [dry_run_report(recipe, **options, processes=processes)])
    if arguments.processes is not None:
        raise HoldfastError(
            f"--processes belongs to --dry-run; start the training itself with torchrun --nproc-per-node "
            f"{arguments.processes} -m holdfast train …"
        )
    try:
        with print_dry_run_comparison("train", arguments) as account:
            result = train(recipe, show=True, **options)
            if result.stopped_by:
                raise _Stopped
    except _Stopped:
        name = signal.Signals(result.stopped_by).name
        console.print(f"stopped by {name} after step {result.step}; resume with: holdfast train --out {out} --resume")
        return EXIT_SIGNAL + result.stopped_by
    if account.comparison and (out / "log.jsonl").exists():
        append_log(out / "log.jsonl", "forecast", step=result.step, **account.comparison)
    console.print(f"finished after {result.step} steps{_validation_score(result)}: {result.folder}", highlight=False)
    return 0


class _Stopped(Exception):
    """Leaves the ``with`` block of a stopped run, so that its duration is not compared with the estimate."""


def _validation_score(result: "TrainingResult") -> str:
    """Sentence with the validation score of the exported weights, and of the best ones if they differ."""
    if result.accuracy is None:
        return ""
    sentence = f"; the exported weights scored {result.accuracy:.2f} % in validation"
    if result.best is not None and result.best > result.accuracy:
        sentence += f", the best {result.best:.2f} % (--checkpoint best)"
    return sentence


def _recipe_and_folder(arguments: Namespace) -> tuple[str | Path, Path]:
    """Return recipe and run folder; a resumed run brings its own recipe."""
    if arguments.recipe is not None:
        stem = str(arguments.recipe).removesuffix(".yaml").strip("/").replace("/", "-")
        return arguments.recipe, arguments.out or Path("runs") / stem
    if not (arguments.resume and arguments.out):
        raise HoldfastError("holdfast train needs a recipe, or --out DIR --resume to resume a run; got neither")
    own = arguments.out / "recipe.yaml"
    if not own.exists():
        raise HoldfastError(f"--out must be the folder of a run to resume it, got {str(arguments.out)!r}")
    return own, arguments.out


def recipe_values(arguments: Namespace) -> dict[str, Any]:
    """The recipe values given on the command line, nested as in YAML."""
    sections = {path.split(".")[0] for path, _, _ in leaves()}
    return {key: _nest_options(value) for key, value in vars(arguments).items() if key in sections}


def _overrides(arguments: Namespace) -> dict[str, Any]:
    """The recipe values given on the command line, including those with a short form."""
    given = recipe_values(arguments)
    for flag, section, key in (
        ("init", "model", "init"),
        ("init_weights", "model", "init_weights"),
        ("compile", "train", "compile"),
        ("skip_bad", "data", "skip_bad"),
    ):
        value = getattr(arguments, flag)
        if value:
            given.setdefault(section, {})[key] = value
    if arguments.method:
        return method_values(arguments.method, given)
    return given


def merge_dictionary_options(argv: list[str]) -> list[str]:
    """Merge dotted options such as ``--objective.options.afat.weight=0.1`` into one option per dictionary."""
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
