"""``holdfast.report``: one self-contained HTML page, or a plain table, from the files of runs."""

import base64
import datetime
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from holdfast import atomic
from holdfast._version import __version__
from holdfast.errors import HoldfastError, nearest
from holdfast.idle_parts import idle_parts
from holdfast.records.records import Records
from holdfast.reporting.entries import MANY, DataSet, data_sets
from holdfast.reporting.export import tables
from holdfast.reporting.runs import Run, chosen, read_runs
from holdfast.reporting.sections.analysis import analysis_section
from holdfast.reporting.sections.data_set import part_of
from holdfast.reporting.sections.origins import named, origin, own_command
from holdfast.reporting.sections.section import Section
from holdfast.reporting.sections.tables import meanings
from holdfast.reporting.sections.trade_off import trade_off_section
from holdfast.reporting.sections.training import training_section
from holdfast.reporting.text import clean_name, printable

# what stands below the data sets, in this order; a new section is a file and a row here
SECTIONS: tuple[Callable[[Sequence[Run]], Section], ...] = (trade_off_section, training_section, analysis_section)
FORMATS = ("html", "md", "csv", "latex", "robustbench")
SUITE_NAMES = {
    "clean": "clean images",
    "corruption": "corruptions",
    "sequence": "perturbation sequences",
    "attack": "attacks",
    "set": "other sets",
    "condition": "conditions",
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
) -> str:
    """Compare runs on one page, from their files alone; returns its text and, with ``out``, writes it in one move.

    Args:
        runs: run folders, folders of records, or records from :func:`holdfast.evaluate`; the first is what the others
            are compared with.
        out: the file to write.
        format: ``html``; or the scores alone as ``md``, ``csv``, ``latex`` or ``robustbench`` (JSON).
        names: what to call the runs, instead of their folders' names.
        title: of the page.
        data: show these data sets only, by their specs or the beginnings of them; a comma list or a sequence.
        suites: show what these suites measured only; likewise.
    """
    if format not in FORMATS:
        raise HoldfastError(f"format must be one of {', '.join(FORMATS)}, got {format!r}{nearest(format, FORMATS)}")
    given = [runs] if isinstance(runs, Path | str | Records) else list(runs)
    shown = {"data": _words(data), "suite": _words(suites)}
    read = chosen(read_runs(given, names=names), data=shown["data"], suites=shown["suite"])
    path = Path(out).expanduser() if out is not None else None
    if path is not None:
        check_writable(path)
    if format == "html":
        options = {"names": ",".join(names), "title": title} | {key: ",".join(value) for key, value in shown.items()}
        text = page(read, title=title, command=own_command(read, path, **options))
    else:
        text = export(read, format=format)
    if path is not None:
        write(path, text)
    return text


def page(runs: Sequence[Run], *, title: str = "", command: str = "") -> str:
    """The HTML of these runs; ``command`` is what makes the page again."""
    sets = data_sets(runs)
    parts = [
        part_of(data, number=n, title=name) for n, (data, name) in enumerate(zip(sets, _titles(sets), strict=True))
    ]
    made = [section(runs) for section in SECTIONS]
    sections, problems = [each for each in made if each.filled], [line for each in made for line in each.problems]
    shown = clean_name(title) or "How well they hold: " + _listed([run.name for run in runs])
    contents = [(part.anchor, part.title) for part in parts] + [(part.anchor, part.title) for part in sections]
    return _template().render(
        title=shown,
        lead=lead(runs, sets),
        models=[named(run) for run in runs],
        many=MANY,
        suites=SUITE_NAMES,
        script=Markup(script()),
        script_hash=script_hash(),
        contents=[*contents, ("reproduce", "Reproduce it"), ("meanings", "Definitions")],
        sentences=[sentence for part in parts for sentence in part.sentences],
        notes=[*unmeasured(runs), *idle(runs), *problems],
        parts=parts,
        sections=sections,
        origins=[origin(run) for run in runs],
        own_command=command or own_command(runs, None),
        meanings=meanings(sets),
        version=__version__,
        date=datetime.date.today().isoformat(),
    )


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


def script() -> str:
    """The page's script: the same text in every page."""
    return resources.files("holdfast.reporting").joinpath("templates/page.js").read_text(encoding="utf-8")


def script_hash() -> str:
    """What a browser must find before it runs it; nothing else on a page is ever run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script().encode()).digest()).decode("ascii")


def _words(given: str | Sequence[str]) -> list[str]:
    words = given.split(",") if isinstance(given, str) else given
    return [word.strip() for word in words if word.strip()]


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
