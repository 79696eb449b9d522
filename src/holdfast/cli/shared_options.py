"""Options that several commands share: preprocessing, --on ray, --dry-run, run folders, the form of the help."""

import sys
from argparse import SUPPRESS, Action, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, DefaultHelpFormatter

from holdfast.cli import EXIT_OK
from holdfast.errors import HoldfastError
from holdfast.io.validation import file_name
from holdfast.registry import model_spec

if TYPE_CHECKING:
    from holdfast.evaluation.config import EvalProtocol
    from holdfast.runtime.dry_run import Account, DryRunReport
    from holdfast.runtime.ray import Cluster


class PlainHelp(DefaultHelpFormatter):
    """Without types of Python and empty defaults; values of a recipe keep both, for there they are the text."""

    def _get_help_string(self, action: Action) -> str:
        said = action.help or ""
        if "." in action.dest or action.dest in ("help", "help_all"):
            return str(super()._get_help_string(action))
        told = not action.option_strings or action.default in (None, False, "", SUPPRESS) or "default:" in said
        return said if told else f"{said} (default: %(default)s)"


def run_folder(model: str) -> Path | None:
    """The folder that ``run:DIR`` or a plain ``DIR`` names; None for any other model."""
    return model_spec(model).folder


def with_checkpoint(model: str, checkpoint: str | None) -> str:
    """The model's spec with the checkpoint that ``--checkpoint`` names; only runs have any."""
    if checkpoint is None:
        return model
    folder = run_folder(model)
    if folder is None:
        raise HoldfastError(f"--checkpoint needs a run's folder, got the model {model!r}")
    return f"run:{folder}@{checkpoint}"


def model_file_name(model: str) -> str:
    """A model's name as a folder's, without what stands before the colon."""
    return file_name(model_spec(model).rest).strip("-.") or "model"


def own_data(model: str, *, command: str) -> str:
    """The validation data of a run's recipe; of the digits the test split, which no recipe trains or selects on."""
    from holdfast.io.yaml import read_yaml

    folder = run_folder(model)
    if folder is None:
        raise HoldfastError(f"holdfast {command} needs --data, such as folder:DIR, for {model!r}, which is not a run")
    path = folder / "recipe.yaml"
    try:
        recipe: Any = read_yaml(path.read_text(encoding="utf-8"), name=repr(str(path)))
        data = str(recipe["data"].get("val") or recipe["data"]["train"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HoldfastError(f"holdfast {command} needs --data: {str(path)!r} cannot be read or names none") from error
    return "digits:test" if data in ("digits", "digits:val", "digits:train") else data


def add_cluster(parser: ArgumentParser, *, task: str) -> None:
    """The options of commands whose work can be done elsewhere."""
    parser.add_argument(
        "--on",
        metavar="ray[=ADDRESS]",
        help=f"{task} as tasks of a Ray cluster: ray starts one on this machine, ray=auto joins the one it belongs to",
    )
    parser.add_argument("--cpus-per-task", type=float, default=1, help="processors that a task on Ray needs")
    parser.add_argument("--gpus-per-task", type=float, default=0, help="GPUs that it needs; 0.25 puts four on one")
    parser.add_argument(
        "--gather", action="store_true", help="bring results home from Ray's nodes, where they share no folder"
    )


def cluster_of(arguments: Namespace) -> "Cluster | None":
    """Where the command runs, if somebody answers there; None for here."""
    if arguments.on is None:
        for option in ("gather", "gpus_per_task"):
            if getattr(arguments, option):
                raise HoldfastError(f"--{option.replace('_', '-')} says how tasks run on Ray and needs --on ray")
        return None
    from holdfast.runtime.ray import Cluster, check_reachable, parse_on

    cluster = Cluster(parse_on(arguments.on), arguments.cpus_per_task, arguments.gpus_per_task, arguments.gather)
    check_reachable(cluster)
    return cluster


def add_dry_run(parser: ArgumentParser) -> None:
    """``--dry-run``."""
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="do nothing: say what would run, and how long it would take, from a few seconds of measuring",
    )


def dry_run(command: str, arguments: Namespace, forecasts: "Sequence[DryRunReport]") -> int:
    """Print what would run, and keep the sum for the day it does."""
    from holdfast.runtime.dry_run import in_sum, remember

    for forecast in forecasts:
        for line in forecast.lines():
            print(line)
    remember(command, vars(arguments), in_sum(forecasts))
    return EXIT_OK


@contextmanager
def told_how_far_off(command: str, arguments: Namespace) -> "Iterator[Account]":
    """Say in the end what the command took, beside what its dry run said, if there was one."""
    from holdfast.runtime.distributed import process_count
    from holdfast.runtime.dry_run import Account, compare_with_dry_run

    if process_count() > 1:  # one process of several does not know what they took
        yield Account()
        return
    with compare_with_dry_run(command, vars(arguments)) as account:
        yield account
    if account.sentence:
        print(account.sentence, file=sys.stderr)


ANSWERS = {"yes": True, "no": False}


def add_preprocessing(parser: ArgumentParser) -> None:
    """The options of :class:`holdfast.EvalProtocol` that say how a model wants its images, and what it answers with."""
    parser.add_argument(
        "--size", help="side of the model's images, or HEIGHTxWIDTH such as 1024x2048 (default: the model's own)"
    )
    parser.add_argument("--mean", type=float, nargs=3, help="subtracted from pixels (default: the model's own)")
    parser.add_argument("--std", type=float, nargs=3, help="divides them then")
    parser.add_argument(
        "--pixel-range", type=int, default=1, help="255 if mean and std are of pixels from 0 to 255, not from 0 to 1"
    )
    parser.add_argument(
        "--probabilities",
        nargs="?",
        const="yes",
        help="yes or no: whether the model answers with them",
    )
    parser.add_argument("--window", type=int, help="look at large images by windows of this side (segmentation)")
    parser.add_argument("--stride", type=int, help="pixels from one window to the next (default: 3/4 of the window)")
    parser.add_argument(
        "--interpolation", help="of the resize: bilinear, bicubic, nearest, lanczos … (default: the model's own)"
    )
    parser.add_argument(
        "--crop-pct", type=float, help="share of the resized image that the crop keeps (default: the model's own)"
    )
    parser.add_argument(
        "--preparation",
        default="model",
        help="model: clean images as the model prepares them; benchmark: all as the corruption benchmark does",
    )


def protocol_of(arguments: Namespace, **other: Any) -> "EvalProtocol":
    """The protocol that the options ask for, with those of a command's own that are called like its fields."""
    from holdfast.evaluation.config import EvalProtocol

    given = {**vars(arguments), **other}
    given |= {"size": size_of(given.get("size")), "probabilities": _answer(given.get("probabilities"))}
    return EvalProtocol(**{each.name: given[each.name] for each in fields(EvalProtocol) if each.name in given})


def size_of(given: str | int | None) -> int | tuple[int, int] | None:
    """``448``, or ``1024x2048`` (height first)."""
    if given is None:
        return None
    sides = str(given).split("x")
    if len(sides) > 2 or not all(side.isdigit() for side in sides):
        raise HoldfastError(f"--size must be a number of pixels, or HEIGHTxWIDTH such as 1024x2048, got {given!r}")
    return int(sides[0]) if len(sides) == 1 else (int(sides[0]), int(sides[1]))


def _answer(given: str | None) -> bool | None:
    if given is not None and given not in ANSWERS:
        raise HoldfastError(f"--probabilities must be yes or no, got {given!r}")
    return None if given is None else ANSWERS[given]
