"""``holdfast mix``: average the weights of finished models."""

from argparse import Namespace
from pathlib import Path

from jsonargparse import ArgumentParser

from holdfast.cli.console import message_console
from holdfast.errors import HoldfastError


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast mix``."""
    parser.add_argument(
        "models", nargs="+", help="runs (DIR, run:DIR@best) or timm:NAME[@FILE]; of two the start comes first"
    )
    parser.add_argument("--out", type=Path, required=True, help="the new run's folder")
    parser.add_argument(
        "--alpha",
        help="weight of the second of two models (WiSE-FT), or first:last:step for one run each (default: 0.5)",
    )
    parser.add_argument("--soup", help="uniform or greedy: the mean of all models, or of those that help")
    parser.add_argument(
        "--greedy",
        default="released",
        help="a greedy soup accepts what raises the validation score (released) or does not lower it (paper)",
    )
    parser.add_argument("--train-data", help="training images (default: those of the last run)")
    parser.add_argument("--val-data", help="validation images; greedy soups choose on them (default: the last run's)")
    parser.add_argument("--validate", action="store_true", help="measure every mixture on the validation images")
    parser.add_argument("--dry-run", action="store_true", help="check the models and say what would be written")


def run(arguments: Namespace) -> None:
    """Mix, and say where the results are."""
    from holdfast.training.mix import describe_mix, mix

    if arguments.soup and arguments.alpha:
        raise HoldfastError("--alpha weighs two models and --soup takes the mean of them; give one of the two")
    options = {
        "alpha": alphas(arguments.alpha or "0.5"),
        "soup": arguments.soup,
        "greedy": arguments.greedy,
        "train": arguments.train_data,
        "val": arguments.val_data,
    }
    if arguments.dry_run:
        print("\n".join(describe_mix(*arguments.models, out=arguments.out, **options)))
        return
    console = message_console(stderr=True)
    for result in mix(*arguments.models, out=arguments.out, validate=arguments.validate, **options):
        shares = " + ".join(f"{weight:.3g} · {spec}" for spec, weight in result.weights.items() if weight)
        scores = "".join(f", {name} {value:.2f} % in validation" for name, value in result.scores.items())
        console.print(f"{shares}{scores}: {result.folder}", markup=False)


def alphas(text: str) -> list[float]:
    """``0.5``, or ``0:1:0.1`` with both ends."""
    try:
        numbers = [float(part) for part in text.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) == 1 and 0 <= numbers[0] <= 1:
        return numbers
    if len(numbers) != 3 or not 0 <= numbers[0] < numbers[1] <= 1 or not 1e-3 <= numbers[2] <= 1:
        raise HoldfastError(f"--alpha must be a number from 0 to 1, or first:last:step such as 0:1:0.1; got {text!r}")
    first, last, step = numbers
    count = int((last - first) / step + 1e-9)
    return [round(first + number * step, 10) for number in range(count + 1)]
