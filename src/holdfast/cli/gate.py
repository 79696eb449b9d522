"""``holdfast gate``: is the new model no worse than the one in production? Exit code 0 yes, 1 no, 2 bad input."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser
from rich.console import Console

from holdfast.cli.exit_codes import EXIT_OK, EXIT_SHUT
from holdfast.cli.preprocessing_options import add_preprocessing, protocol_of
from holdfast.cli.shared_options import model_file_name, run_folder
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.gate import PairedScores, Rules


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast gate``."""
    parser.add_argument("run", nargs="?", help="the new model: a run's folder, or a folder of records")
    parser.add_argument(
        "--against", type=Path, help="the model in production: a run, a folder of records, or a file of --save"
    )
    parser.add_argument(
        "--rules", type=Path, help="a YAML file of rules (default: every headline score no worse by more than 0.5)"
    )
    parser.add_argument("--model", help="instead of a run: any model, measured first as the baseline was")
    parser.add_argument("--data", nargs="+", help="where the baseline's data are, if not where it says; with --model")
    parser.add_argument("--out", type=Path, help="the folder that gets the records of --model (default: runs/MODEL)")
    parser.add_argument("--workers", type=int, help="processes that read and corrupt images (default: by the machine)")
    parser.add_argument("--unresolved", help="what these images cannot tell shall fail or pass (default: fail)")
    parser.add_argument("--margin", type=float, help="points that still count as no worse (default: 0.5)")
    parser.add_argument(
        "--allow-unreadable", type=int, metavar="N", help="how many more images than of the baseline may be unreadable"
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write the verdicts as JUnit XML")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write them as Markdown")
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="write a small baseline file for later gates; not if this one is shut"
    )
    parser.add_argument(
        "--classes-differ", action="store_true", help="measure --model although the data's classes have other names"
    )
    add_preprocessing(parser, preparation=False)  # which is the baseline's
    parser.usage = "holdfast gate [RUN] [--model MODEL] [--against RUN|RECORDS|FILE] [--save FILE] [OPTIONS]"


def run(arguments: Namespace) -> int:
    """Judge, print the verdicts, write what was asked for; save a baseline unless the gate is shut."""
    from holdfast.gate import all_passed, decide, paired_scores_of
    from holdfast.gate.output import junit, markdown, terminal
    from holdfast.io import atomic

    _check(arguments)
    rules = _rules(arguments)
    old = _baseline(arguments.against) if arguments.against is not None else []
    new = paired_scores_of(arguments.run) if arguments.model is None else _evaluate_candidate(arguments, old)
    console = Console(soft_wrap=True, highlight=False)
    answers = decide(new, old, rules) if arguments.against is not None else []
    if answers:
        console.print(terminal(answers), markup=False)
    for path, text in ((arguments.junit, junit), (arguments.markdown, markdown)):
        if path is not None and answers:
            atomic.write_text(path, text(answers))
    if not all_passed(answers):
        return EXIT_SHUT
    if arguments.save is not None:
        _save(new, arguments.save, console)
    return EXIT_OK


def _check(arguments: Namespace) -> None:
    if (arguments.run is None) == (arguments.model is None):
        came = "neither" if arguments.run is None else "both"
        raise HoldfastError(f"holdfast gate needs a run's folder or --model, one of the two; got {came}")
    if arguments.model is None and protocol_of(arguments) != protocol_of(Namespace()):
        raise HoldfastError("how a model wants its images (--size, --mean, --outputs …) goes with --model, got a run")
    if arguments.against is None and (arguments.save is None or arguments.model is not None):
        raise HoldfastError("holdfast gate needs --against RUN|RECORDS|FILE, or --save FILE for a run; got neither")
    for option in ("save", "junit", "markdown"):
        path = getattr(arguments, option)
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise HoldfastError(f"--{option} must be a file in a folder that is there, got {str(path)!r}")


def _rules(arguments: Namespace) -> "Rules":
    from holdfast.gate import Rules, read_rules

    rules = read_rules(arguments.rules) if arguments.rules is not None else Rules()
    given = {name: getattr(arguments, name) for name in ("unresolved", "margin", "allow_unreadable")}
    return replace(rules, **{name: value for name, value in given.items() if value is not None})


def _baseline(path: Path) -> "list[PairedScores]":
    from holdfast.gate import paired_scores_of, read_baseline

    if not path.exists():
        raise HoldfastError(
            f"--against must be a run, a folder of records or a baseline file, but {str(path)!r} is not there"
        )
    return paired_scores_of(path) if path.is_dir() else read_baseline(path)


def _evaluate_candidate(arguments: Namespace, old: "list[PairedScores]") -> "list[PairedScores]":
    from holdfast.gate.evaluate_candidate import measured_like

    out = arguments.out or (None if run_folder(arguments.model) else Path("runs") / model_file_name(arguments.model))
    given = {"data": arguments.data, "out": out, "workers": arguments.workers}
    return measured_like(old, arguments.model, protocol=protocol_of(arguments), **given)


def _save(sides: "list[PairedScores]", path: Path, console: Console) -> None:
    from holdfast.gate import save_baseline

    size = save_baseline(sides, path)
    sets = ", ".join(f"{side.data} ({side.count} images × {len(side.cells)} cells)" for side in sides)
    console.print(f"baseline of {sets}: {path}, {size / 1000:.0f} kB", markup=False)
    for side in sides:
        for line in _lacking(side):
            console.print(f"{side.data}: {line}", markup=False)


def _lacking(side: "PairedScores") -> list[str]:
    """What a baseline does not hold: later gates judge by the rest, or refuse."""
    from holdfast.gate.scores import lacking
    from holdfast.metrics.summary import some

    scores: dict[tuple[str, ...], list[str]] = {}
    for name, cells in lacking(side).items():
        scores.setdefault(cells, []).append(name)
    lines = [f"{' and '.join(names)} only in part, without {some(cells)}" for cells, names in scores.items()]
    return [*lines, f"only partly measured: {some(side.unfinished)}"] if side.unfinished else lines
