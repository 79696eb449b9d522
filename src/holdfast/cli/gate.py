"""``holdfast gate``: test that a new model is no worse than the baseline. Exit code 0: pass, 1: fail, 2: bad input."""

import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser
from rich.console import Console

from holdfast.cli import EXIT_GATE_FAILED, EXIT_OK
from holdfast.cli.console import message_console, table_width
from holdfast.cli.shared_options import (
    add_classes,
    add_cluster,
    add_preprocessing,
    cluster_of,
    model_file_name,
    protocol_of,
    run_folder,
)
from holdfast.errors import HoldfastError
from holdfast.io import atomic
from holdfast.io.validation import counted

COUNT = 12  # pictures of failures

if TYPE_CHECKING:
    from holdfast.gate import PairedScores, Rules, RuleVerdict


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast gate``."""
    parser.add_argument("run", nargs="?", help="the new model: a run's folder, or a folder of records")
    parser.add_argument(
        "--against", type=Path, help="the model in production: a run, a folder of records, or a file of --save"
    )
    parser.add_argument(
        "--rules",
        type=Path,
        help="a YAML file of rules (default: no headline score may be worse by more than 0.5 points)",
    )
    parser.add_argument("--model", help="instead of a run: any model, evaluated first with the baseline's protocol")
    parser.add_argument("--data", nargs="+", help="with --model: location of the baseline's data, if they have moved")
    parser.add_argument("--out", type=Path, help="folder for the records of --model (default: runs/MODEL)")
    parser.add_argument(
        "--workers", type=int, help="processes that read and corrupt images (default: depends on the machine)"
    )
    parser.add_argument(
        "--until",
        metavar="decided",
        help="decided: measure both models round by round, and stop as soon as every rule is decided",
    )
    parser.add_argument(
        "--budget",
        metavar="TIME|PASSES",
        help="with --until: stop after a time such as 10m, or after a number of passes (an image in a cell)",
    )
    add_cluster(parser, task="the units of --model or the rounds of --until")
    parser.add_argument("--unresolved", help="fail or pass a rule that these images cannot decide (default: fail)")
    parser.add_argument("--margin", type=float, help="non-inferiority margin in points (default: 0.5)")
    parser.add_argument(
        "--allow-unreadable",
        type=int,
        metavar="N",
        help="how many more unreadable images than the baseline are allowed",
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write the verdicts as JUnit XML")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the verdicts as Markdown")
    parser.add_argument(
        "--pictures",
        type=Path,
        metavar="FILE.png",
        help="also draw failures of the new model on one picture: of --model, or of a run evaluated with "
        "--keep-examples; they are copies of your data, so mind its licence",
    )
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="write a small baseline file for later gates, unless this gate fails"
    )
    parser.add_argument(
        "--classes-differ",
        action="store_true",
        help="evaluate --model even if the class names of model and data differ",
    )
    add_preprocessing(parser, preparation=False)  # which is the baseline's
    add_classes(parser, default="the baseline's")
    parser.usage = (
        "holdfast gate [RUN] [--model MODEL] [--against RUN|RECORDS|FILE]\n                     [--save FILE] [OPTIONS]"
    )


def run(arguments: Namespace) -> int:
    """Print and write the verdicts; save a baseline unless the gate fails."""
    from holdfast.gate import all_passed, decide, paired_scores_of
    from holdfast.gate.output import junit, markdown, terminal
    from holdfast.gate.scores import check_rules

    _check(arguments)
    rules = _rules(arguments)
    old = _baseline(arguments.against) if arguments.against is not None else []
    console = message_console()
    if arguments.model is not None or arguments.until is not None:
        check_rules(old, rules)
    if arguments.until is not None:
        answers, new = _decide_in_rounds(arguments, old, rules, console)
    else:
        new = paired_scores_of(arguments.run) if arguments.model is None else _evaluate_candidate(arguments, old)
        answers = decide(new, old, rules) if arguments.against is not None else []
    if answers:
        console.print(terminal(answers, width=table_width()), markup=False)
    for path, text in ((arguments.junit, junit), (arguments.markdown, markdown)):
        if path is not None and answers:
            atomic.write_text(path, text(answers))
    if arguments.pictures is not None:
        _draw_failures(arguments)
    if not all_passed(answers):
        return EXIT_GATE_FAILED
    if arguments.save is not None:
        _save(new, arguments.save, console)
    return EXIT_OK


def _check(arguments: Namespace) -> None:
    if (arguments.run is None) == (arguments.model is None):
        given = "neither" if arguments.run is None else "both"
        raise HoldfastError(f"holdfast gate needs either a run's folder or --model, got {given}")
    if arguments.model is None and protocol_of(arguments) != protocol_of(Namespace()):
        raise HoldfastError("the model's input options (--size, --mean, --outputs …) need --model, got a run")
    if arguments.against is None and (arguments.save is None or arguments.model is not None):
        raise HoldfastError("holdfast gate needs --against RUN|RECORDS|FILE, or --save FILE for a run; got neither")
    if arguments.on is not None and arguments.model is None and arguments.until is None:
        raise HoldfastError("--on ray needs something to measure: --model or --until decided, got a run")
    if arguments.until not in (None, "decided"):
        raise HoldfastError(f"--until must be decided, got {arguments.until!r}; for a precision, use holdfast evaluate")
    if arguments.until is None and arguments.budget is not None:
        raise HoldfastError("--budget needs --until decided, got none")
    if arguments.until is not None and arguments.pictures is not None:
        raise HoldfastError("--pictures needs an evaluation of all images: omit --until")
    if arguments.until is not None and arguments.against is None:
        raise HoldfastError("--until decided needs a baseline: --against RUN|RECORDS|FILE")
    for option in ("save", "junit", "markdown", "pictures"):
        path = getattr(arguments, option)
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise HoldfastError(f"--{option} must be a file in an existing folder, got {str(path)!r}")


def _rules(arguments: Namespace) -> "Rules":
    from holdfast.gate import Rules, read_rules

    rules = read_rules(arguments.rules) if arguments.rules is not None else Rules()
    given = {name: getattr(arguments, name) for name in ("unresolved", "margin", "allow_unreadable")}
    return replace(rules, **{name: value for name, value in given.items() if value is not None})


def _baseline(path: Path) -> "list[PairedScores]":
    from holdfast.gate import paired_scores_of, read_baseline

    if not path.exists():
        raise HoldfastError(
            f"--against must be a run, a folder of records or a baseline file, but {str(path)!r} does not exist"
        )
    return paired_scores_of(path) if path.is_dir() else read_baseline(path)


def _decide_in_rounds(
    arguments: Namespace, old: "list[PairedScores]", rules: "Rules", console: Console
) -> "tuple[list[RuleVerdict], list[PairedScores]]":
    """Measure the new model, and a run whose measurement stopped early, until every rule is decided."""
    from holdfast.gate.decide_in_rounds import decide_in_rounds
    from holdfast.gate.evaluate_candidate import requests_like_baseline, requests_of_old
    from holdfast.gate.forecast import forecast

    for line in forecast(old, rules):
        console.print(line, markup=False)
    given = {"data": arguments.data, "workers": arguments.workers, "cluster": cluster_of(arguments)}
    model, out = arguments.model, None
    if model is None:
        model = f"run:{arguments.run}"
    elif not run_folder(model):
        out = arguments.out or Path("runs") / model_file_name(model)
    new = requests_like_baseline(old, model, out=arguments.out or out, protocol=protocol_of(arguments), **given)
    before = requests_of_old(old, arguments.against, **given)
    return decide_in_rounds(new, old, rules, old_requests=before, budget=arguments.budget, show=True)


def _evaluate_candidate(arguments: Namespace, old: "list[PairedScores]") -> "list[PairedScores]":
    from holdfast.gate.evaluate_candidate import evaluate_like_baseline

    out = None if run_folder(arguments.model) and not arguments.out else _candidate_folder(arguments)
    given = {"data": arguments.data, "out": out, "workers": arguments.workers, "cluster": cluster_of(arguments)}
    given["keep_examples"] = COUNT if arguments.pictures is not None else 0
    return evaluate_like_baseline(old, arguments.model, protocol=protocol_of(arguments), **given)


def _candidate_folder(arguments: Namespace) -> Path:
    """The folder of the new model's records."""
    if arguments.model is None:
        return Path(arguments.run)
    return arguments.out or run_folder(arguments.model) or Path("runs") / model_file_name(arguments.model)


def _draw_failures(arguments: Namespace) -> None:
    from holdfast.records.records import load_records
    from holdfast.reporting.failure_sheet import failure_sheet

    if not failure_sheet(load_records(_candidate_folder(arguments)), arguments.pictures, count=COUNT):
        print("no pictures: the records hold no examples of failures", file=sys.stderr)


def _size(scores: "PairedScores") -> str:
    return f"{counted(scores.count, 'image')} × {counted(len(scores.cells), 'cell')}"


def _save(scores: "list[PairedScores]", path: Path, console: Console) -> None:
    from holdfast.gate import save_baseline

    size = save_baseline(scores, path)
    sets = ", ".join(f"{each.data} ({_size(each)}{_passes(each)})" for each in scores)
    console.print(f"baseline of {sets}: {path}, {size / 1000:.0f} kB", markup=False)
    for each in scores:
        for line in _incomplete_scores(each):
            console.print(f"{each.data}: {line}", markup=False)


def _passes(baseline: "PairedScores") -> str:
    """Passes of a baseline that holds some images in some cells; a pass is one image in one cell."""
    if not baseline.rows:
        return ""
    whole = (baseline.count + len(baseline.missing)) * len(baseline.cells)
    return f", {sum(map(len, baseline.rows.values())):,} of {whole:,} passes"


def _incomplete_scores(baseline: "PairedScores") -> list[str]:
    """Sentences about incomplete scores: later gates use the rest, or refuse."""
    from holdfast.gate.scores import missing_headlines
    from holdfast.metrics.summary import some

    scores: dict[tuple[str, ...], list[str]] = {}
    for name, cells in missing_headlines(baseline).items():
        scores.setdefault(cells, []).append(name)
    lines = [f"{' and '.join(names)} incomplete, without {some(cells)}" for cells, names in scores.items()]
    return [*lines, f"only partly measured: {some(baseline.unfinished)}"] if baseline.unfinished else lines
