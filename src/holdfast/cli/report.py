"""``holdfast report``: compare runs on one page, or in one table, from their files alone."""

from argparse import Namespace
from pathlib import Path

from jsonargparse import ArgumentParser

from holdfast.cli.console import message_console
from holdfast.errors import HoldfastError

DEFAULT, SITE = Path("report.html"), Path("leaderboard")


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast report``."""
    parser.add_argument("runs", nargs="+", help="run folders, or folders of records; the first is the baseline")
    parser.add_argument(
        "--out", type=Path, help=f"file or folder to write (default: {DEFAULT}, or {SITE}; tables are printed)"
    )
    parser.add_argument(
        "--format",
        default="html",
        help="html; scores only: md, csv, latex, robustbench (JSON); site: a leaderboard in a folder",
    )
    parser.add_argument("--names", help="comma-separated names of the runs (default: their folders' names)")
    parser.add_argument("--title", default="", help="title of the page")
    parser.add_argument("--data", default="", help="only these data sets, separated by commas (digits, imagenet-c, …)")
    parser.add_argument("--figures", type=Path, help="folder to which each figure of the page is written as a file")
    parser.add_argument("--figure-format", default="pdf", help="of --figures: some of svg, pdf, png, csv (the numbers)")
    parser.add_argument("--suite", default="", help="only these suites, separated by commas")


def run(arguments: Namespace) -> None:
    """Write the page and print its path, or print the table."""
    from holdfast.reporting.page import report

    names = [name.strip() for name in arguments.names.split(",")] if arguments.names else []
    if not all(names):
        raise HoldfastError(f"--names must be names separated by commas, got {arguments.names!r}")
    if len(set(names)) < len(names):
        raise HoldfastError(f"--names must differ, got {arguments.names!r}")
    out = arguments.out or {"html": DEFAULT, "site": SITE}.get(arguments.format)
    options = {"title": arguments.title, "data": arguments.data, "suites": arguments.suite}
    options |= {"figures": arguments.figures, "figure_format": arguments.figure_format}
    text = report(arguments.runs, out=out, format=arguments.format, names=names, **options)
    if out is None:
        print(text)
    else:
        message_console(stderr=True).print(f"written: {out}", markup=False)
