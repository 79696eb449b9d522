"""``holdfast report``: compare runs on one page, or in one table, from their files alone."""

from argparse import Namespace
from pathlib import Path

from jsonargparse import ArgumentParser
from rich.console import Console

from holdfast.errors import HoldfastError

DEFAULT, SITE = Path("report.html"), Path("leaderboard")


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast report``."""
    parser.add_argument("runs", nargs="+", help="run folders, or folders of records; the first is the baseline")
    parser.add_argument("--out", type=Path, help=f"what to write (default: {DEFAULT}, or {SITE}; tables are printed)")
    parser.add_argument(
        "--format",
        default="html",
        help="html, the scores alone as md, csv, latex or robustbench (JSON), or site: a leaderboard as a folder",
    )
    parser.add_argument("--names", help="what to call the runs, separated by commas, instead of their folders' names")
    parser.add_argument("--title", default="", help="the title of the page")
    parser.add_argument("--data", default="", help="these data sets only, separated by commas (digits, imagenet-c, …)")
    parser.add_argument("--suite", default="", help="what these suites measured only, separated by commas")


def run(arguments: Namespace) -> None:
    """Write the page and say where, or print the table."""
    from holdfast.reporting.page import report

    names = [name.strip() for name in arguments.names.split(",")] if arguments.names else []
    if not all(names):
        raise HoldfastError(f"--names must be names separated by commas, got {arguments.names!r}")
    if len(set(names)) < len(names):
        raise HoldfastError(f"--names must differ, got {arguments.names!r}")
    out = arguments.out or {"html": DEFAULT, "site": SITE}.get(arguments.format)
    shown = {"title": arguments.title, "data": arguments.data, "suites": arguments.suite}
    text = report(arguments.runs, out=out, format=arguments.format, names=names, **shown)
    if out is None:
        print(text)
    else:
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"written: {out}", markup=False)
