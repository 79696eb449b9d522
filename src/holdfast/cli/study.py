"""``holdfast study``: run the missing parts of recipes × seeds × suites and tabulate all results."""

import sys
from argparse import Namespace
from pathlib import Path

from jsonargparse import ArgumentParser

from holdfast.cli import EXIT_SIGNAL, stopped_by
from holdfast.cli.console import message_console, print_table, table_width
from holdfast.cli.shared_options import add_cluster, add_dry_run, cluster_of, dry_run, print_dry_run_comparison
from holdfast.cli.train import add_recipe_values, recipe_values, shorten_help
from holdfast.errors import HoldfastError
from holdfast.io.validation import comma_list

__all__ = ["add_arguments", "run", "shorten_help"]


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast study``: its own, and one per value of a recipe."""
    parser.add_argument("study", help="a shipped study (`holdfast list studies`) or a YAML file")
    parser.add_argument("--out", type=Path, help="the study's folder (default: studies/STUDY)")
    parser.add_argument("--processes", type=int, default=1, help="number of runs in parallel")
    parser.add_argument("--rows", help="only these rows, separated by commas")
    parser.add_argument("--seeds", help="these seeds instead of the study's, separated by commas")
    parser.add_argument("--test", help="evaluate on these data instead of the study's")
    parser.add_argument("--limit", type=int, help="number of test images, stratified by class; 0 for all")
    parser.add_argument(
        "--table-only", action="store_true", help="train nothing: only table and plots of existing results"
    )
    add_dry_run(parser)
    add_cluster(parser, task="runs")
    parser.usage = (
        "holdfast study STUDY [--out DIR] [--processes N] [--rows A,B]\n"
        "                      [--seeds 0,1] [--SECTION.KEY=VALUE …]"
    )
    add_recipe_values(parser)


def run(arguments: Namespace) -> int:
    """Run the missing parts, then write and print the table."""
    from holdfast.studies.config import load_study
    from holdfast.studies.report import terminal_tables, write_page
    from holdfast.studies.results import all_results

    study = load_study(
        arguments.study,
        overrides=recipe_values(arguments),
        rows=_rows(arguments.rows),
        seeds=_numbers(arguments.seeds),
        test=arguments.test,
        limit=arguments.limit,
    )
    out = arguments.out or Path("studies") / study.name
    cluster = cluster_of(arguments)
    if arguments.dry_run:
        from holdfast.studies.dry_run import dry_run_report

        show = message_console(stderr=True).print
        found = dry_run_report(
            study, out=out, processes=arguments.processes, tell=lambda row: show(f"measuring {row} …")
        )
        return dry_run("study", arguments, [found])
    if not arguments.table_only:
        from holdfast.studies.runner import run_study

        try:
            with print_dry_run_comparison("study", arguments):
                run_study(study, out=out, processes=arguments.processes, cluster=cluster)
        except KeyboardInterrupt as stop:
            print("stopped; run the same command again to resume", file=sys.stderr)
            return EXIT_SIGNAL + stopped_by(stop)
    results = all_results(out, study)
    if not results:
        raise HoldfastError(
            f"--out must hold results of this study, got none in {str(out)!r}; run it without --table-only"
        )
    page = write_page(study, results, out=out)
    for table in terminal_tables(study, results, width=table_width()):
        print_table(table)
    print(f"table, plots and verdicts: {page}")
    return 0


def _rows(text: str | None) -> tuple[str, ...]:
    rows = comma_list(text or "")
    if text is not None and not rows:
        raise HoldfastError(f"--rows must be names of rows separated by commas, got {text!r}")
    return rows


def _numbers(text: str | None) -> list[int]:
    if text is not None and not comma_list(text):
        raise HoldfastError(f"--seeds must be whole numbers separated by commas, got {text!r}")
    try:
        return [int(number) for number in comma_list(text or "")]
    except ValueError as error:
        raise HoldfastError(f"--seeds must be whole numbers separated by commas, got {text!r}") from error
