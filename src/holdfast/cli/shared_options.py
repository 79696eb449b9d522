"""Options that several commands share: --on ray, --dry-run, run folders; and the formatter of help texts."""

import sys
from argparse import SUPPRESS, Action, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, DefaultHelpFormatter

from holdfast.cli.exit_codes import EXIT_OK
from holdfast.errors import HoldfastError
from holdfast.io.validation import file_name
from holdfast.registry import model_spec

if TYPE_CHECKING:
    from holdfast.runtime.dry_run import Account, DryRunReport
    from holdfast.runtime.ray import Cluster


class PlainHelp(DefaultHelpFormatter):
    """Help formatter without Python types and empty defaults; recipe values keep both, as part of their text."""

    def _get_help_string(self, action: Action) -> str:
        text = action.help or ""
        if "." in action.dest or action.dest in ("help", "help_all"):
            return str(super()._get_help_string(action))
        plain = not action.option_strings or action.default in (None, False, "", SUPPRESS) or "default:" in text
        return text if plain else f"{text} (default: %(default)s)"


def run_folder(model: str) -> Path | None:
    """Return the folder of ``run:DIR`` or a plain ``DIR``; None for any other model."""
    return model_spec(model).folder


def with_checkpoint(model: str, checkpoint: str | None) -> str:
    """Add the checkpoint of ``--checkpoint`` to a run's spec; other models have none."""
    if checkpoint is None:
        return model
    folder = run_folder(model)
    if folder is None:
        raise HoldfastError(f"--checkpoint needs a run's folder, got the model {model!r}")
    return f"run:{folder}@{checkpoint}"


def model_file_name(model: str) -> str:
    """Turn a model's spec into a folder name, without the prefix before the colon."""
    return file_name(model_spec(model).rest).strip("-.") or "model"


def own_data(model: str, *, command: str) -> str:
    """Return the validation data of a run's recipe; for digits the test split, which no recipe trains or selects on."""
    from holdfast.io.yaml import read_yaml

    folder = run_folder(model)
    if folder is None:
        raise HoldfastError(f"holdfast {command} needs --data, such as folder:DIR, for {model!r}, which is not a run")
    path = folder / "recipe.yaml"
    try:
        recipe: Any = read_yaml(path.read_text(encoding="utf-8"), name=repr(str(path)))
        data = str(recipe["data"].get("val") or recipe["data"]["train"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HoldfastError(
            f"holdfast {command} needs --data: {str(path)!r} cannot be read or names no data"
        ) from error
    return "digits:test" if data in ("digits", "digits:val", "digits:train") else data


def add_cluster(parser: ArgumentParser, *, task: str) -> None:
    """Add the options of commands that can run on a Ray cluster."""
    parser.add_argument(
        "--on",
        metavar="ray[=ADDRESS]",
        help=f"run {task} as tasks on Ray: ray starts a cluster on this machine, ray=auto joins a running one",
    )
    parser.add_argument("--cpus-per-task", type=float, default=1, help="CPUs per Ray task")
    parser.add_argument(
        "--gpus-per-task", type=float, default=0, help="GPUs per Ray task; 0.25 runs four tasks on one GPU"
    )
    parser.add_argument(
        "--gather", action="store_true", help="copy results back from Ray nodes that share no file system"
    )


def cluster_of(arguments: Namespace) -> "Cluster | None":
    """Connect to the cluster of ``--on``; None runs on this machine."""
    if arguments.on is None:
        for option in ("gather", "gpus_per_task"):
            if getattr(arguments, option):
                raise HoldfastError(f"--{option.replace('_', '-')} applies to tasks on Ray and needs --on ray")
        return None
    from holdfast.runtime.ray import Cluster, check_reachable, parse_on

    cluster = Cluster(parse_on(arguments.on), arguments.cpus_per_task, arguments.gpus_per_task, arguments.gather)
    check_reachable(cluster)
    return cluster


def add_dry_run(parser: ArgumentParser) -> None:
    """Add the option ``--dry-run``."""
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print what would run and an estimate of its duration, measured in a few seconds; run nothing",
    )


def dry_run(command: str, arguments: Namespace, forecasts: "Sequence[DryRunReport]") -> int:
    """Print the estimates and store their sum for comparison with the actual run."""
    from holdfast.runtime.dry_run import in_sum, remember

    for forecast in forecasts:
        for line in forecast.lines():
            print(line)
    remember(command, vars(arguments), in_sum(forecasts))
    return EXIT_OK


@contextmanager
def print_dry_run_comparison(command: str, arguments: Namespace) -> "Iterator[Account]":
    """Print the actual duration next to the estimate of an earlier dry run, if there was one."""
    from holdfast.runtime.distributed import process_count
    from holdfast.runtime.dry_run import Account, compare_with_dry_run

    if process_count() > 1:  # one process of several does not know the total
        yield Account()
        return
    with compare_with_dry_run(command, vars(arguments)) as account:
        yield account
    if account.sentence:
        print(account.sentence, file=sys.stderr)
