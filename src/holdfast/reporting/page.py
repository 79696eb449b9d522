"""``holdfast.report``: one self-contained HTML page, or a plain table, from the files of runs."""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from holdfast import atomic
from holdfast._version import __version__
from holdfast.errors import HoldfastError, nearest
from holdfast.idle_parts import idle_parts
from holdfast.metrics.comparison import Comparison
from holdfast.records.records import Records
from holdfast.reporting.analysis_section import analysis_pictures
from holdfast.reporting.data_figures import data_figures
from holdfast.reporting.entries import DataSet, Entry, comparisons, data_sets, described, warnings_of
from holdfast.reporting.export import tables
from holdfast.reporting.figures import forest
from holdfast.reporting.heat_maps import HeatMap, heat_maps
from holdfast.reporting.origins import named, origin, own_command
from holdfast.reporting.papers import PaperTable, paper_table
from holdfast.reporting.pictures import Picture, svg_picture
from holdfast.reporting.runs import Run, read_runs
from holdfast.reporting.seeds import SeedTable, seed_table
from holdfast.reporting.sentences import Sentence, sentences
from holdfast.reporting.tables import (
    DifferenceRow,
    Row,
    Table,
    compared,
    difference_row,
    headline_table,
    meanings,
    more_table,
)
from holdfast.reporting.text import clean_name, kind_label, printable
from holdfast.reporting.training_section import COLUMNS, training_figures, training_rows

FORMATS = ("html", "md", "csv", "latex", "robustbench")


@dataclass(frozen=True)
class Compared:
    """One model against the first: a figure and the same numbers as a table."""

    entry: Entry
    figure: Picture
    rows: Sequence[DifferenceRow]


@dataclass(frozen=True)
class Part:
    """Everything about one data set."""

    anchor: str
    title: str
    description: str
    warnings: Sequence[str]
    headline: Table
    more: Table
    seeds: SeedTable | None
    figures: Sequence[Picture]
    baseline: str
    comparisons: Sequence[Compared]
    heat_maps: Sequence[HeatMap]
    papers: PaperTable | None
    on_the_fly: bool
    sentences: Sequence[Sentence]


@dataclass(frozen=True)
class Section:
    """Figures that belong to the runs, not to a data set: training, attention."""

    anchor: str
    title: str
    description: str
    figures: Sequence[Picture]
    table: Table | None = None


def report(
    runs: Path | str | Records | Sequence[Path | str | Records],
    *,
    out: Path | str | None = None,
    format: str = "html",
    names: Sequence[str] = (),
    title: str = "",
) -> str:
    """Compare runs on one page, from their files alone; returns its text and, with ``out``, writes it in one move.

    Args:
        runs: run folders, folders of records, or records from :func:`holdfast.evaluate`; the first is what the others
            are compared with.
        out: the file to write.
        format: ``html``; or the scores alone as ``md``, ``csv``, ``latex`` or ``robustbench`` (JSON).
        names: what to call the runs, instead of their folders' names.
        title: of the page.
    """
    if format not in FORMATS:
        raise HoldfastError(f"format must be one of {', '.join(FORMATS)}, got {format!r}{nearest(format, FORMATS)}")
    given = [runs] if isinstance(runs, Path | str | Records) else list(runs)
    read = read_runs(given, names=names)
    path = Path(out).expanduser() if out is not None else None
    if path is not None:
        check_writable(path)
    text = page(read, title=title, out=path) if format == "html" else export(read, format=format)
    if path is not None:
        write(path, text)
    return text


def page(runs: Sequence[Run], *, title: str = "", out: Path | None = None) -> str:
    """The HTML of these runs."""
    sets = data_sets(runs)
    parts = [part_of(data, number=number, several=_titles(sets)) for number, data in enumerate(sets)]
    pictures, problems = analysis_pictures(runs)
    sections = [*training_section(runs), *analysis_section(pictures)]
    shown = clean_name(title) or "How well they hold: " + _listed([run.name for run in runs])
    contents = [(part.anchor, part.title) for part in parts] + [(part.anchor, part.title) for part in sections]
    return _template().render(
        title=shown,
        lead=lead(runs, sets),
        contents=[*contents, ("reproduce", "Reproduce it"), ("meanings", "Definitions")],
        sentences=[sentence for part in parts for sentence in part.sentences],
        notes=[*unmeasured(runs), *idle(runs), *problems],
        parts=parts,
        sections=sections,
        origins=[origin(run) for run in runs],
        own_command=own_command(runs, out),
        meanings=meanings(sets),
        version=__version__,
        date=datetime.date.today().isoformat(),
    )


def part_of(data: DataSet, *, number: int, several: Sequence[str]) -> Part:
    """Everything about one data set."""
    anchor = f"data-{number + 1}"
    against = comparisons(data)
    return Part(
        anchor=anchor,
        title=several[number],
        description=described(data),
        warnings=warnings_of(data),
        headline=headline_table(data),
        more=more_table(data),
        seeds=seed_table(data),
        figures=data_figures(data, anchor=anchor),
        baseline=data.baseline.name,
        comparisons=list(_compared(against, baseline=data.baseline.name, anchor=anchor)),
        heat_maps=heat_maps(data),
        papers=paper_table(data),
        on_the_fly=data.protocol == "on-the-fly",
        sentences=sentences(data, against),
    )


def training_section(runs: Sequence[Run]) -> list[Section]:
    """How the runs were trained, if any has a log."""
    pictures = training_figures(runs)
    if not pictures:
        return []
    table = Table(COLUMNS, [Row(named(run), cells) for run, cells in training_rows(runs)])
    return [Section("training", "Training", "From the logs of the runs.", pictures, table)]


def analysis_section(pictures: Sequence[Picture]) -> list[Section]:
    """Why, if any run was analysed."""
    text = "What holdfast analyze found inside the models."
    pictures = sorted(pictures, key=lambda picture: picture.wide)  # no holes in the grid
    return [Section("attention", "Inside the models", text, pictures)] if pictures else []


def lead(runs: Sequence[Run], sets: Sequence[DataSet]) -> str:
    """What the page is about, in one sentence."""
    models = f"{len(runs)} models" if len(runs) > 1 else "One model"
    where = _listed(list(dict.fromkeys(data.spec for data in sets)))
    what = f"{models} on {where}" if sets else f"{models}, not evaluated yet"
    apart = " Results on different images are kept apart and not compared." if len(sets) > 1 else ""
    return f"{what}: clean accuracy, what corruption and attacks leave of it, and why.{apart}"


def unmeasured(runs: Sequence[Run]) -> list[str]:
    """Runs without a single finished cell."""
    without = [run.name for run in runs if not any(records.cells for records in run.records)]
    text = f"Not evaluated yet: {_listed(without)}. Run holdfast evaluate and write the report again."
    return [text] if without else []


def idle(runs: Sequence[Run]) -> list[str]:
    """Parts of the objectives that did nothing while the runs were trained."""
    return [f"{run.name}: {sentence}." for run in runs for sentence in idle_parts(run.log)]


def export(runs: Sequence[Run], *, format: str) -> str:
    """The scores alone, in another format, each model under its run's name."""
    sets = [
        replace(records, header={**records.header, "model": run.name, "architecture": run.architecture})
        for run in runs
        for records in run.records
    ]
    return tables.export(sets, format, paper=True)


def check_writable(path: Path) -> None:
    """Refuse an output that cannot be written before anything is computed."""
    if path.is_dir() or not path.parent.is_dir():
        reason = "it is a folder" if path.is_dir() else f"there is no folder {str(path.parent)!r}"
        raise HoldfastError(f"out must be a file we can write, got {str(path)!r} ({reason})")


def write(path: Path, text: str) -> None:
    """Write the file in one move."""
    try:
        atomic.write_text(path, text)
    except OSError as error:
        raise HoldfastError(f"out must be a file we can write, got {str(path)!r} ({error.strerror})") from error


def _compared(against: Sequence[tuple[Entry, Comparison]], *, baseline: str, anchor: str) -> Iterator[Compared]:
    for number, (entry, comparison) in enumerate(against):
        differences = compared(comparison)
        rows = [(kind_label(difference.label), difference.interval) for difference in differences]
        if rows:
            picture = svg_picture(
                lambda rows=rows: forest(rows),  # type: ignore[misc]
                name=f"{anchor}-against-{number + 1}",
                title=f"{entry.name} against {baseline}, kind by kind",
            )
            yield Compared(entry, picture, [difference_row(difference) for difference in differences])


def _titles(sets: Sequence[DataSet]) -> list[str]:
    """Names of the data sets, with as much as tells them apart."""
    titles = [data.spec for data in sets]
    for more in (
        lambda d: f", {d.baseline.summary.images} images",
        lambda d: f", {d.protocol}",
        lambda d: f" [{d.fingerprint[:8]}]",
    ):
        twice = {title for title in titles if titles.count(title) > 1}
        titles = [title + more(data) if title in twice else title for title, data in zip(titles, sets, strict=True)]
    return titles


def _listed(names: Sequence[str], *, most: int = 4) -> str:
    shown = [*names[:most], f"{len(names) - most} more"] if len(names) > most else list(names)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else ""


def _printable(value: Any) -> Any:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("holdfast.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2")
