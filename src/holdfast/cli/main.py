"""The ``holdfast`` command: imports the subcommand's module, runs it and prints errors as one sentence."""

import argparse
import contextlib
import importlib
import itertools
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from holdfast._version import __version__
from holdfast.cli import EXIT_BAD_INPUT, EXIT_OK, EXIT_SIGNAL, stopped_by
from holdfast.errors import HoldfastError, nearest
from holdfast.runtime.signals import handle_signals

# name -> one line for `holdfast --help`. Each lives in holdfast/cli/<name>.py as `add_arguments(parser)` and
# `run(arguments)`, and imports torch only inside `run`.
COMMANDS = {
    "list": "list models (--cost: with size and GMACs), methods, corruptions, suites, recipes, studies or data",
    "train": "train or fine-tune a model from a recipe",
    "improve": "find the best robust fine-tuning for your data and a time budget; prints a decision",
    "mix": "average the weights of models: WiSE-FT between a start and its fine-tuned model, uniform and greedy soups",
    "evaluate": "measure a model on clean, corrupted, perturbed, attacked or official images; resumes if interrupted",
    "analyze": "explain robustness: attention stability, overfocusing, head diversity, noise decay, grouping",
    "lab": "explore one image with one or two models on a local page: corruptions, patches, attacks, attention",
    "gate": "test that a model is no worse than the one in production: exit code 0 or 1, JUnit, Markdown",
    "report": "compare runs on one self-contained page: scores, intervals, heat maps, training, attention",
    "study": "run the missing parts of a grid of recipes × seeds × suites; one table with verdicts",
    "card": "write a model card for the Hub: results with intervals and definitions, training, figures, limits",
    "export": "write a model as ONNX or .pt2 with a dynamic batch size, checked on real images",
    "predict": "print a model's predictions for your images",
    "runs": "list the runs in a folder with their progress and scores",
    "convert": "turn a published checkpoint into a folder that timm loads",
    "corrupt": "write corrupted copies of a folder of images",
    "demo": "train, evaluate, analyse and compare three models of a task on embedded images",
    "completion": "print a shell script that completes commands and options",
}

# commands that resume when run again after Ctrl-C, SIGTERM or a crash; `train` prints its own line (--resume)
RESUMABLE = ("evaluate", "analyze", "corrupt", "study", "demo", "improve")
LONGEST_ERROR = 2_000  # letters


def build_parser(command: str | None = None) -> Any:
    """Build the parser of ``holdfast``, or of one of its commands."""
    if command is not None:
        import jsonargparse  # imported late: it takes a quarter of a second, which `holdfast --help` need not wait for

        from holdfast.cli.shared_options import PlainHelp

        parser = jsonargparse.ArgumentParser(
            prog=f"holdfast {command}",
            description=f"{COMMANDS[command][0].upper()}{COMMANDS[command][1:]}.",
            exit_on_error=False,
            allow_abbrev=False,
            formatter_class=PlainHelp,
        )
        _module(command).add_arguments(parser)
        return parser
    general = argparse.ArgumentParser(
        prog="holdfast",
        description="Vision transformers that hold when images go bad.",
        epilog="\n".join(["commands:", *_command_lines(shutil.get_terminal_size().columns)]),
        formatter_class=_EpilogAsWritten,
        exit_on_error=False,
    )
    general.add_argument("--version", action="version", version=f"holdfast {__version__}")
    general.add_argument("command", metavar="COMMAND", help="one of the commands below; see COMMAND --help")
    general.add_argument(
        "--plugin",
        metavar="FILE",
        help="after any COMMAND: a Python file that registers your own models, attacks, data …",
    )
    return general


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; bad input prints one sentence and returns 2."""
    for stream in (
        sys.stdout,
        sys.stderr,
    ):  # file names need not be valid UTF-8: escape them instead of failing to print
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")
    return _run_guarded(list(sys.argv[1:] if argv is None else argv))


def _run_guarded(argv: list[str]) -> int:
    try:
        with handle_signals():
            return _run_command(argv)
    except (HoldfastError, argparse.ArgumentError) as error:
        return _print_error(str(error))
    except KeyboardInterrupt as stop:
        hint = "; run the same command again to resume" if argv and argv[0] in RESUMABLE else ""
        print(f"holdfast: stopped{hint}", file=sys.stderr)
        return EXIT_SIGNAL + stopped_by(stop)
    except SystemExit as stop:  # argparse exits this way after --help
        return int(stop.code or EXIT_OK)
    except BrokenPipeError:  # `holdfast list … | head`: the flush at exit must not fail on the closed pipe again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except (OSError, MemoryError, RuntimeError) as error:  # a full disk, a folder without permission
        if isinstance(error, RuntimeError) and not re.search("allocate memory|out of memory", str(error)):
            raise
        return _print_error(_machine_limit(error))


def _machine_limit(error: OSError | MemoryError | RuntimeError) -> str:
    if not isinstance(error, OSError):
        return "out of memory; use smaller batches, images or models"
    return f"{error.strerror or error}{f': {error.filename!r}' if error.filename else ''}"


def _print_error(sentence: str) -> int:
    text = " ".join(sentence.split())
    if len(text) > LONGEST_ERROR:  # a value of any length may be quoted in it
        text = f"{text[: LONGEST_ERROR // 2]} … {text[-LONGEST_ERROR // 2 :]}"
    line = f"holdfast: error: {text}"
    if sys.stderr.isatty():  # which would break words at its edge
        width = shutil.get_terminal_size().columns
        line = textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
    print(line, file=sys.stderr)
    return EXIT_BAD_INPUT


def _run_command(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        build_parser().print_help()
        return EXIT_OK if argv else EXIT_BAD_INPUT
    if argv[0] == "--version":
        print(f"holdfast {__version__}")
        return EXIT_OK
    from holdfast.runtime.plugins import (
        load_plugins,
    )  # imported late, as everything that `holdfast --help` can do without

    command, rest = argv[0], load_plugins(argv[1:])
    if command not in COMMANDS:
        raise _unknown_command(command)
    if sys.stderr.isatty():
        import logging

        from holdfast.cli.console import WrappedWarnings

        logging.basicConfig(format="%(message)s", handlers=[WrappedWarnings()])
    parser = build_parser(command)
    if "--help-all" in rest:
        parser.print_help()
        return EXIT_OK
    if {"-h", "--help"} & {*rest}:  # `train` and `study` hide the recipe values
        getattr(_module(command), "shorten_help", lambda parser: None)(parser)
    merge_options = getattr(_module(command), "merge_dictionary_options", list)  # `train` has dotted options
    arguments = _parse_arguments(parser, _known_options(parser, merge_options(rest)))
    return int(_module(command).run(arguments) or EXIT_OK)


def _unknown_command(command: str) -> HoldfastError:
    if command.startswith("-"):
        hint = nearest(command, ("--help", "--version", "--plugin"), cutoff=0.75) or "; options follow the command"
        return HoldfastError(f"unknown option {command!r}{hint}")
    hint = nearest(command, COMMANDS) or f"; expected one of {', '.join(COMMANDS)}"
    return HoldfastError(f"unknown command {command!r}{hint}")


def _known_options(parser: argparse.ArgumentParser, argv: list[str]) -> list[str]:
    """Return the arguments unchanged; a misspelt option raises an error with the nearest names."""
    for argument, following in itertools.pairwise([*argv, None]):
        assert argument is not None
        option, sign, value = argument.partition("=")
        if option.startswith("--") and option != "--title" and (value if sign else following) == "":
            raise HoldfastError(f"option {option!r} must not be empty, got ''")
    known = [option for action in parser._actions for option in action.option_strings]
    for argument in argv:
        option = argument.split("=", maxsplit=1)[0]
        if option == "--":
            break
        if option.startswith("--") and not any(option == name or option.startswith(f"{name}.") for name in known):
            raise HoldfastError(f"unknown option {option!r}{_nearest_option(option, known)}")
    return argv


def _nearest_option(option: str, known: Sequence[str]) -> str:
    """Hint for a misspelt option: values of a recipe by their last word, else names that are much alike."""
    word = option.removeprefix("--").replace("-", "_")
    exact = [name for name in known if name.removeprefix("--").rpartition(".")[2].replace("-", "_") == word]
    if exact:
        return nearest(option, exact, cutoff=0)
    close = nearest(option, known, count=1, cutoff=0.85)  # such as --methods for --method
    return close or nearest(option, [name for name in known if name not in ("--help", "--help-all")], cutoff=0.6)


def _parse_arguments(parser: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace:
    try:
        return parser.parse_args(argv)
    except argparse.ArgumentError as error:
        from holdfast.io.validation import refusal  # imported late: `holdfast --help` does not need it

        options = {action.dest: action for action in parser._actions if action.option_strings}
        kinds = {name: getattr(action, "_typehint", action.type) for name, action in options.items()}
        names = {name: action.option_strings[0] for name, action in options.items()}
        shown = {action.dest: action.metavar for action in parser._actions if isinstance(action.metavar, str)} | names
        if missing := re.fullmatch("the following arguments are required: (.*)", str(error)):
            wanted = [shown.get(name, name.upper()) for name in missing[1].split(", ")]
            usage = f"; see {parser.prog} --help"
            raise HoldfastError(f"{parser.prog} needs {' and '.join(wanted)}{usage}") from error
        raise HoldfastError(refusal(str(error), kinds, names)) from error


def entry_point() -> None:
    """Run the command line and exit; called by the installed ``holdfast`` script."""
    code = main()
    if sys.argv[1:2] == ["lab"]:  # it leaves nothing to be written, and taking PyTorch apart takes seconds after Ctrl-C
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


class _EpilogAsWritten(argparse.HelpFormatter):
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(indent + line for line in text.splitlines())


def _command_lines(width: int) -> list[str]:
    """Lines with the commands and what they do, within a width."""
    wrap = textwrap.TextWrapper(max(width, 40), subsequent_indent=" " * 14, break_on_hyphens=False).wrap
    return [line for name, text in COMMANDS.items() for line in wrap(f"  {name:<12}{text}")]


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"holdfast.cli.{command}")
