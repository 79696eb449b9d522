"""``holdfast.report``: a self-contained HTML page, a table or a leaderboard from the files of runs."""

import base64
import datetime
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import resources
from itertools import count
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from holdfast._deprecated import renamed
from holdfast._version import __version__
from holdfast.errors import HoldfastError, nearest
from holdfast.io import atomic
from holdfast.io.training_log import idle_parts
from holdfast.metrics.multiple_tests import MARGIN
from holdfast.plotting.files import printable
from holdfast.records.class_map import answers_in_short
from holdfast.records.records import Records
from holdfast.reporting.comparable import MANY, DataSet, data_sets
from holdfast.reporting.export import tables
from holdfast.reporting.export.figures import parse_figure_formats, write_figures
from holdfast.reporting.figures.charts import ReportFigure
from holdfast.reporting.formatting import clean_name, list_names
from holdfast.reporting.runs import Run, choose_records, read_runs
from holdfast.reporting.sections.analysis import analysis_section
from holdfast.reporting.sections.data_set import part_of
from holdfast.reporting.sections.error_types import breaks_section
from holdfast.reporting.sections.improvement import improve_cards
from holdfast.reporting.sections.key_findings import carry_over_sentences
from holdfast.reporting.sections.reproduce import name_run, origin, own_command
from holdfast.reporting.sections.score_tables import meanings
from holdfast.reporting.sections.section import Section
from holdfast.reporting.sections.trade_off import trade_off_section
from holdfast.reporting.sections.training import training_section

# sections below the data sets, in this order; a new section is a module and a row here
SECTIONS: tuple[Callable[[Sequence[Run]], Section], ...] = (
    trade_off_section,
    breaks_section,
    training_section,
    analysis_section,
)
FORMATS = ("html", "md", "csv", "latex", "robustbench", "site")
SUITE_NAMES = {
    "clean": "clean images",
    "corruption": "corruptions",
    "sequence": "perturbation sequences",
    "attack": "attacks",
    "set": "other sets",
    "condition": "conditions",
    "domain": "domains",
    "shape": "shape bias",
}


def report(
    runs: Path | str | Records | Sequence[Path | str | Records],
    *,
    out: Path | str | None = None,
    format: str = "html",
    names: Sequence[str] = (),
    title: str = "",
    data: str | Sequence[str] = (),
    suites: str | Sequence[str] = (),
    figures: Path | str | None = None,
    figure_format: str = "pdf",
) -> str:
    """Compare runs on one page from their files alone; return its text and write it atomically to ``out``.

    Args:
        runs: run folders, folders of records, or records from `holdfast.evaluate`; the first is the
            baseline of comparisons.
        out: the file to write.
        format: ``html``; the scores alone as ``md``, ``csv``, ``latex`` or ``robustbench`` (JSON); or ``site``, a
            leaderboard: ``out`` is then a folder, and the text that of its first page.
        names: names of the runs; by default those of their folders.
        title: title of the page.
        data: only these data sets, by their specs or prefixes; a comma list or a sequence.
        suites: only these suites; a comma list or a sequence.
        figures: a folder for the page's figures, a file each; only with ``html``.
        figure_format: ``svg``, ``pdf``, ``png`` or ``csv`` (the numbers); a comma list for several.
    """
    formats = parse_figure_formats(figure_format)
    if figures is not None and format != "html":
        raise HoldfastError(f"figures are those of the page: they need format html, got {format!r}")
    if format not in FORMATS:
        raise HoldfastError(f"format must be one of {', '.join(FORMATS)}, got {format!r}{nearest(format, FORMATS)}")
    given = [runs] if isinstance(runs, Path | str | Records) else list(runs)
    selection = {"data": _words(data), "suite": _words(suites)}
    read = choose_records(read_runs(given, names=names), data=selection["data"], suites=selection["suite"])
    path = Path(out).expanduser() if out is not None else None
    options = {"names": ",".join(names), "title": title} | {key: ",".join(value) for key, value in selection.items()}
    if format == "site":
        return _site(read, path, title=title, options=options)
    if path is not None:
        check_writable(path)
    if format == "html":
        if figures is not None:
            options |= {"figures": str(figures)} | ({} if figure_format == "pdf" else {"figure-format": figure_format})
        text, drawn = _page(read, data_sets(read), title=title, command=own_command(read, path, **options))
        if figures is not None:
            write_figures(drawn, Path(figures).expanduser(), formats=formats)
    else:
        text = export(read, format=format)
    if path is not None:
        write(path, text)
    return text


def _site(runs: Sequence[Run], out: Path | None, *, title: str, options: dict[str, str]) -> str:
    from holdfast.reporting.leaderboard import write_site

    if out is None:
        raise HoldfastError("out must name the folder of the site, got none")
    return write_site(runs, out, title=title, command=own_command(runs, out, format="site", **options))


def page(runs: Sequence[Run], *, title: str = "", command: str = "") -> str:
    """Render the HTML of these runs; ``command`` is the command line that reproduces the page."""
    return _page(runs, data_sets(runs), title=title, command=command)[0]


def model_page(run: Run, sets: Sequence[DataSet]) -> str:
    """Render the page of one model of a leaderboard."""
    own = [replace(data, entries=[entry for entry in data.entries if entry.number == run.number]) for data in sets]
    return _page([run], [data for data in own if data.entries], title=run.name, back="../index.html")[0]


def _page(
    runs: Sequence[Run], sets: Sequence[DataSet], *, title: str, command: str = "", back: str = ""
) -> tuple[str, list[ReportFigure]]:
    """The HTML and the figures on it."""
    parts = [part_of(data, number=n, title=name) for n, (data, name) in enumerate(zip(sets, titles(sets), strict=True))]
    rendered = [section(runs) for section in SECTIONS]
    sections, problems = (
        [each for each in rendered if each.has_content],
        [line for each in rendered for line in each.problems],
    )
    heading = clean_name(title) or "Robustness of " + list_names([run.name for run in runs])
    contents = [(part.anchor, part.title) for part in parts] + [(part.anchor, part.title) for part in sections]
    figures = [
        *(figure for part in parts for figure in part.figures),
        *(compared.figure for part in parts for base in part.baselines[:1] for compared in base.by_kind),
        *(figure for section in sections for figure in section.figures),
    ]
    text = render_page(
        "page.html.j2",
        title=heading,
        lead=lead(runs, sets),
        back=back,
        models=[name_run(run) for run in runs],
        contents=[*contents, ("reproduce", "Reproduction"), ("meanings", "Definitions")],
        sentences=carry_over_sentences(sets),
        notes=[*unmeasured_runs(runs), *idle_terms(runs), *problems],
        improvements=[] if back else improve_cards(runs),
        parts=parts,
        sections=sections,
        origins=[origin(run) for run in runs],
        own_command="" if back else command or own_command(runs, None),
        meanings=meanings(sets),
        margin=f"{MARGIN:g}",
    )
    return text, figures


def render_page(template: str, **values: Any) -> str:
    """Render a template with the values that all pages share."""
    numbers = count(1)
    return _template(template).render(
        many=MANY,
        next_id=lambda: next(numbers),
        suites=SUITE_NAMES,
        script=Markup(script()),
        script_hash=script_hash(),
        version=__version__,
        date=datetime.date.today().isoformat(),
        **values,
    )


def lead(runs: Sequence[Run], sets: Sequence[DataSet]) -> str:
    """Introductory sentence of the page."""
    models = f"{len(runs)} models" if len(runs) > 1 else "One model"
    if not sets:
        return f"{models}, not evaluated yet."
    where = list_names(list(dict.fromkeys(data.title for data in sets)))
    apart = " Results on different images are not compared." if len(sets) > 1 else ""
    return f"{models} on {where}: scores on clean, corrupted and attacked images, and explanations.{apart}"


def unmeasured_runs(runs: Sequence[Run]) -> list[str]:
    """Sentence about runs without a finished cell."""
    without = [run.name for run in runs if not any(records.cells for records in run.records)]
    text = f"Not evaluated yet: {list_names(without, most=MANY)}. Run holdfast evaluate, then create the report again."
    return [text] if without else []


def idle_terms(runs: Sequence[Run]) -> list[str]:
    """Sentences about loss terms and modules that had no effect in training."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for sentence in idle_parts(run.log):
            found.setdefault(sentence, []).append(run.name)
    return [f"{list_names(names, most=MANY)}: {sentence}." for sentence, names in found.items()]


def export(runs: Sequence[Run], *, format: str) -> str:
    """Export the scores in another format, each model under its run's name."""
    sets = [
        replace(records, header={**records.header, "model": run.name, "architecture": run.architecture})
        for run in runs
        for records in run.records
    ]
    return tables.export(sets, format, paper=True)


def check_writable(path: Path) -> None:
    """Refuse an unwritable output before anything is computed."""
    if path.is_dir() or not path.parent.is_dir():
        reason = "it is a folder" if path.is_dir() else f"the folder {str(path.parent)!r} does not exist"
        raise HoldfastError(f"out must be a writable file, got {str(path)!r} ({reason})")


def write(path: Path, text: str) -> None:
    """Write the file atomically."""
    try:
        atomic.write_text(path, text)
    except OSError as error:
        raise HoldfastError(f"out must be a writable file, got {str(path)!r} ({error.strerror})") from error


def script() -> str:
    """The page's script, the same in every report."""
    return resources.files("holdfast.reporting").joinpath("templates/page.js").read_text(encoding="utf-8")


def script_hash() -> str:
    """Hash of the script for the Content-Security-Policy, which forbids all other scripts.

    Reports show names and recipes of others' runs; even if one slipped through escaping, a browser would not run it.
    """
    return "sha256-" + base64.b64encode(hashlib.sha256(script().encode()).digest()).decode("ascii")


def _words(given: str | Sequence[str]) -> list[str]:
    words = given.split(",") if isinstance(given, str) else given
    return [word.strip() for word in words if word.strip()]


def titles(sets: Sequence[DataSet]) -> list[str]:
    """Distinct titles of the data sets: the spec, and details where specs are equal."""
    names = [data.title for data in sets]
    for more in (
        lambda d: f", {d.baseline.summary.images} images",
        lambda d: f", {d.protocol}",
        lambda d: f", {answers}" if (answers := answers_in_short(d.baseline.records.header)) else "",
        lambda d: f" [{d.fingerprint[:8]}]",
    ):
        twice = {name for name in names if names.count(name) > 1}
        names = [name + more(data) if name in twice else name for name, data in zip(names, sets, strict=True)]
    return names


def _printable(value: Any) -> Any:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _template(name: str) -> Any:
    environment = Environment(
        loader=PackageLoader("holdfast.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = lambda name: escape(name).replace("_", Markup("_<wbr>"))
    environment.filters["lower_first"] = lambda text: text[:1].lower() + text[1:]
    return environment.get_template(name)


__getattr__ = renamed(__name__)
