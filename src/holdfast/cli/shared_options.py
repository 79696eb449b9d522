"""Options that several commands share: preprocessing, --on ray, --dry-run, run folders; the formatter of help texts."""

import sys
import textwrap
from argparse import SUPPRESS, Action, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, DefaultHelpFormatter

from holdfast.cli import EXIT_OK
from holdfast.cli.console import message_console
from holdfast.errors import HoldfastError
from holdfast.io.validation import file_name
from holdfast.io.yaml import read_yaml
from holdfast.registry import model_spec
from holdfast.runtime.distributed import process_count

if TYPE_CHECKING:
    from holdfast.evaluation.config import EvalProtocol
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

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)  # as in category-ids


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


def check_model(model: str) -> None:
    """Raise an error for text that is neither a spec nor a folder, and for a folder without a model."""
    from holdfast.models.factory import unknown_model, without_model

    folder = run_folder(model)
    if folder is None and not model_spec(model).kind:
        raise unknown_model(model)
    if folder is not None and (problem := without_model(folder)) is not None:
        raise problem


def own_data(model: str, *, command: str) -> str:
    """Return the validation data of a run's recipe; for digits the test split, which no recipe trains or selects on."""
    check_model(model)
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

    console = message_console()
    for forecast in forecasts:
        for line in forecast.lines():
            console.print(line, markup=False)
    remember(command, vars(arguments), in_sum(forecasts))
    return EXIT_OK


@contextmanager
def print_dry_run_comparison(command: str, arguments: Namespace) -> "Iterator[Account]":
    """Print the actual duration next to the estimate of an earlier dry run, if there was one."""
    from holdfast.runtime.dry_run import Account, compare_with_dry_run

    if process_count() > 1:  # one process of several does not know the total
        yield Account()
        return
    with compare_with_dry_run(command, vars(arguments)) as account:
        yield account
    if account.sentence:
        print(account.sentence, file=sys.stderr)


ANSWERS = {"yes": True, "no": False}


def add_preprocessing(parser: ArgumentParser, *, preparation: bool = True) -> None:
    """Add the options of `holdfast.EvalProtocol` that describe a model's input and output."""
    parser.add_argument(
        "--size", help="input size in pixels, or HEIGHTxWIDTH such as 1024x2048 (default: the model's own)"
    )
    parser.add_argument("--mean", type=float, nargs=3, help="per-channel mean (default: the model's own)")
    parser.add_argument("--std", type=float, nargs=3, help="per-channel standard deviation (default: the model's own)")
    parser.add_argument(
        "--pixel-range", type=int, default=1, help="255 if mean and std refer to pixels from 0 to 255 instead of 0 to 1"
    )
    parser.add_argument(
        "--probabilities",
        nargs="?",
        const="yes",
        help="yes if the model returns probabilities, no if logits",
    )
    parser.add_argument("--window", type=int, help="side of the sliding windows for large images (segmentation)")
    parser.add_argument("--stride", type=int, help="stride of the sliding windows (default: 3/4 of the window)")
    parser.add_argument(
        "--interpolation",
        help="interpolation of the resize: bilinear, bicubic, nearest, lanczos … (default: the model's own)",
    )
    parser.add_argument("--crop-pct", type=float, help="ratio of crop size to resized size (default: the model's own)")
    if preparation:
        parser.add_argument(
            "--preparation",
            default="model",
            help="model: clean images get the model's own transform; benchmark: all get the corruption benchmark's",
        )
    _add_dense_options(parser)


def add_classes(parser: ArgumentParser, *, default: str = "restricted for class maps and wnids") -> None:
    """Add the options that say which outputs of a model are the classes of the data."""
    parser.add_argument(
        "--class-map",
        metavar="FILE",
        help="the model's outputs for each class of the data: a YAML or CSV file, imagenet-16 or objectnet",
    )
    parser.add_argument(
        "--classes",
        help=f"restricted to the data's classes, or all of the model's (default: {default})",
    )


def _add_dense_options(parser: ArgumentParser) -> None:
    """Add the options that describe the outputs of other projects' detectors and segmenters."""
    parser.add_argument(
        "--outputs",
        help="of an ONNX detector: torchvision, paddle, yolov8, yolov5, yolov10, detr, rt-detr; of an ONNX segmenter: "
        "logits, labels (default: recognised)",
    )
    parser.add_argument(
        "--resize", help="of an ONNX detector or segmenter: stretch, letterbox or none (default: as its project does)"
    )
    parser.add_argument("--nms", help="after an ONNX detector: per-class, agnostic or none (default: as its project)")
    parser.add_argument("--nms-iou", type=float, help="IoU threshold of this suppression (default: as its project)")
    parser.add_argument(
        "--score-threshold", type=float, help="lowest score of a detection (default: as its project, at most 0.001)"
    )
    parser.add_argument(
        "--class-ids", help="class numbers of an ONNX detector: ranks or category-ids (default: by their number)"
    )


def protocol_of(arguments: Namespace, **other: Any) -> "EvalProtocol":
    """Build the protocol from the options whose names match its fields; ``other`` overrides them."""
    from holdfast.evaluation.config import EvalProtocol

    given = {**vars(arguments), **other}
    given |= {"probabilities": _answer(given.get("probabilities"))}
    return EvalProtocol(**{each.name: given[each.name] for each in fields(EvalProtocol) if each.name in given})


def _answer(given: str | None) -> bool | None:
    if given is not None and given not in ANSWERS:
        raise HoldfastError(f"--probabilities must be yes or no, got {given!r}")
    return None if given is None else ANSWERS[given]
