"""``holdfast list``: tables of models, methods, corruptions, suites, recipes, studies, data and other registries."""

import fnmatch
import re
from argparse import Namespace
from collections.abc import Callable, Mapping

from jsonargparse import ArgumentParser
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from holdfast.cli.console import print_table
from holdfast.errors import HoldfastError, nearest
from holdfast.published import published
from holdfast.registry import METHOD_LINES, MODEL_NAMES, SUITES
from holdfast.runtime.plugins import PLUGINS
from holdfast.training import recipe_files


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast list``."""
    parser.add_argument("what", metavar="KIND", help=", ".join(sorted(LISTERS)))
    parser.add_argument("pattern", nargs="?", help="only names that match, such as 'fan_*_hybrid'")
    parser.add_argument(
        "--cost",
        action="store_true",
        help="models: count parameters and GMACs, next to the papers' values; recipes: images a step, FLOPs, memory "
        "and hours on GPUs",
    )


def run(arguments: Namespace) -> None:
    """Print the table of the chosen kind."""
    if arguments.what not in LISTERS:
        names = ", ".join(sorted(LISTERS))
        raise HoldfastError(
            f"KIND must be one of {names}, got {arguments.what!r}{nearest(arguments.what, LISTERS, count=1)}"
        )
    for table in LISTERS[arguments.what](arguments):
        print_table(table)


def models_table(arguments: Namespace) -> list[Table]:
    """Holdfast's own models; timm's are listed by timm."""
    names = _matching_names(arguments.pattern, list(MODEL_NAMES))
    if not arguments.cost:
        return [_table("model", rows=[[name] for name in names])]
    from holdfast.models.flops import measure_cost

    papers = published("models")
    table = Table(box=None, header_style="bold")
    for column in ("model", "image", "params M", "GMACs", "paper M", "paper G"):
        table.add_column(column, justify="left" if column == "model" else "right", no_wrap=True)
    for name in track(names, description="counting", transient=True):
        cost, paper = measure_cost(name), papers["models"].get(name, {})
        figures = [
            f"{cost.parameters / 1e6:.2f}",
            f"{cost.gmacs:.2f}",
            paper.get("params_m", "–"),
            paper.get("gmacs", "–"),
        ]
        table.add_row(name, str(cost.image_size[0]), *map(str, figures))
    return [table]


def corruptions_table(arguments: Namespace) -> list[Table]:
    """The corruptions in canonical order; `holdfast corrupt` applies them."""
    from holdfast.corruptions import catalog_table

    header, rows = catalog_table()
    names = _matching_names(arguments.pattern, [row[0] for row in rows])
    table = _table(*header, rows=[list(row) for row in rows if row[0] in names])
    return [table]


def recipes_table(arguments: Namespace) -> list[Table]:
    """The shipped recipes; `holdfast train NAME` runs one."""
    names = _matching_names(arguments.pattern, recipe_files.recipe_names())
    if not arguments.cost:
        return [_table("recipe", "what it trains", rows=[[name, recipe_files.headline(name)] for name in names])]
    costs = {name: _recipe_cost(name) for name in names}
    table = Table(box=None, header_style="bold")
    table.add_column("recipe", no_wrap=True)
    for column in ("images a step", "exaFLOP", "GB per GPU", "A100 hours"):
        table.add_column(column, justify="right")
    for name, cost in costs.items():
        if not isinstance(cost, str):
            table.add_row(name, *cost)
    told = [[name, cost] for name, cost in costs.items() if isinstance(cost, str)]
    return [each for each in (table, _table("recipe", "what it costs", rows=told)) if each.row_count]


def _recipe_cost(name: str) -> list[str] | str:
    """What a recipe's header says of its cost: figures where they were counted, else its sentence."""
    lines = recipe_files.header(name)
    counted = re.match(r"(\S+) exaFLOP, (\S+) GB per GPU, (\S+) A100 hours", lines.get("cost", ""))
    return lines.get("cost", "–") if counted is None else [lines["batch"].split()[0], *counted.groups()]


def studies_table(arguments: Namespace) -> list[Table]:
    """The shipped studies; `holdfast study NAME` runs one."""
    from holdfast.studies.config import headline, study_names

    names = _matching_names(arguments.pattern, study_names())
    return [_table("study", "what it asks", rows=[[name, headline(name)] for name in names])]


def methods_table(arguments: Namespace) -> list[Table]:
    """The training objectives, and the loss terms of the robust one."""
    lines = METHOD_LINES
    if PLUGINS:  # a plug-in may have registered more
        from holdfast.methods import methods

        lines = methods()
    names = _matching_names(arguments.pattern, list(lines))
    return [_table("method", "what it does", rows=[[name, lines[name]] for name in names])]


def suites_table(arguments: Namespace) -> list[Table]:
    """The suites that `holdfast evaluate --suite` accepts, separated by commas."""
    from holdfast.benchmarks import benchmark_suites

    lines = SUITES | benchmark_suites()
    names = _matching_names(arguments.pattern, list(lines))
    return [_table("suite", "what it measures", rows=[[name, lines[name]] for name in names])]


def data_table(arguments: Namespace) -> list[Table]:
    """The data sources that a recipe can name, several joined with a plus sign; then the official test sets."""
    from holdfast.data import OFFICIAL, SOURCES

    lines = {name: (source.form, source.line) for name, source in SOURCES.items()}
    lines |= {name: (f"{name}:DIR", layout.line) for name, layout in OFFICIAL.items()}
    names = _matching_names(arguments.pattern, list(lines))
    return [_table("data", "what it is", rows=[[escape(part) for part in lines[name]] for name in names])]


def analyses_table(arguments: Namespace) -> list[Table]:
    """The analyses that `holdfast analyze --only` accepts."""
    from holdfast.analysis.registry import ANALYSES

    return _lines_table("analysis", "what it shows", {name: each.line for name, each in ANALYSES.items()}, arguments)


def benchmarks_table(arguments: Namespace) -> list[Table]:
    """The corruption benchmarks, from which suites and scores follow."""
    from holdfast.benchmarks import BENCHMARKS

    lines = {name: each.suite or each.source for name, each in BENCHMARKS.items()}
    return _lines_table("benchmark", "what it is", lines, arguments)


def metrics_table(arguments: Namespace) -> list[Table]:
    """The metrics of plug-ins; shipped scores are on the page of metrics."""
    from holdfast.metrics.custom import METRICS

    return _lines_table("metric", "what it measures", {name: each.line for name, each in METRICS.items()}, arguments)


def tasks_table(arguments: Namespace) -> list[Table]:
    """The tasks; a data source says which is its own."""
    from holdfast.tasks import TASKS

    return _lines_table("task", "what an image has", {name: each.line for name, each in TASKS.items()}, arguments)


def layouts_table(arguments: Namespace) -> list[Table]:
    """The layouts of other projects' detectors, for `holdfast evaluate --outputs`."""
    from holdfast.deploy.detection_layouts import LAYOUTS

    return _lines_table("layout", "what it is", {name: each.line for name, each in LAYOUTS.items()}, arguments)


def _lines_table(name: str, line: str, lines: Mapping[str, str], arguments: Namespace) -> list[Table]:
    names = _matching_names(arguments.pattern, list(lines))
    return [_table(name, line, rows=[[each, lines[each]] for each in names])]


def _matching_names(pattern: str | None, names: list[str]) -> list[str]:
    if pattern is None:
        return names
    found = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
    if not found:
        raise HoldfastError(f"nothing matches {pattern!r}{nearest(pattern, names)}")
    return found


def _table(*columns: str, rows: list[list[str]]) -> Table:
    table = Table(*columns, box=None, header_style="bold")
    table.columns[0].no_wrap = True  # names are typed
    for row in rows:
        table.add_row(*row)
    return table


LISTERS: dict[str, Callable[[Namespace], list[Table]]] = {
    "analyses": analyses_table,
    "benchmarks": benchmarks_table,
    "corruptions": corruptions_table,
    "data": data_table,
    "layouts": layouts_table,
    "methods": methods_table,
    "metrics": metrics_table,
    "models": models_table,
    "recipes": recipes_table,
    "studies": studies_table,
    "suites": suites_table,
    "tasks": tasks_table,
}
