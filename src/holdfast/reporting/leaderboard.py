"""Leaderboard of ``holdfast report --format site``: static pages, one with all models and one per model.

Measured and published scores are never in one table, nor are corruptions generated on the fly and stored sets: every
ranking is of one data set under one protocol.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from holdfast.errors import HoldfastError
from holdfast.io import atomic
from holdfast.io.validation import file_name
from holdfast.reporting.comparable import DataSet, Entry, data_sets, which_images
from holdfast.reporting.formatting import NOT_MEASURED, clean_name, number
from holdfast.reporting.page import model_page, render_page, titles
from holdfast.reporting.quantities import is_headline
from holdfast.reporting.runs import Run
from holdfast.reporting.sections.published_tables import published_tables
from holdfast.reporting.sections.score_tables import all_table, meanings
from holdfast.reporting.table import Row, Table

INDEX, MODELS = "index.html", "models"
MARK = "Holdfast leaderboard"  # identifies a folder that may be replaced
COLUMNS = ("architecture", "parameters, M", "GMACs")
PAPERS = {  # part of an architecture's name and the paper that describes it, more specific ones first
    "tap_": "https://arxiv.org/abs/2303.11126",
    "fan_": "https://arxiv.org/abs/2204.12451",
    "rvt_": "https://arxiv.org/abs/2105.07926",
    "deit": "https://arxiv.org/abs/2012.12877",
    "swin": "https://arxiv.org/abs/2103.14030",
    "convnext": "https://arxiv.org/abs/2201.03545",
    "resnet": "https://arxiv.org/abs/1512.03385",
    "vit_": "https://arxiv.org/abs/2010.11929",
}
PROTOCOLS = {
    "on-the-fly": "measured here, on the fly",
    "official": "measured here, on the stored images as distributed",
}


@dataclass(frozen=True)
class ModelFact:
    """Architecture, parameters or GMACs of a model, with the value to sort by and a link, if there are any."""

    text: str
    value: float | None = None
    link: str = ""


@dataclass(frozen=True)
class Ranking:
    """The models on one data set under one protocol, best first."""

    anchor: str
    title: str
    protocol: str
    description: str
    table: Table
    ranked_by: str
    headline: frozenset[str]
    places: Mapping[Entry, str]
    facts: Mapping[Entry, Sequence[ModelFact]]
    papers: Sequence[Table]


def write_site(runs: Sequence[Run], out: Path, *, title: str = "", command: str = "") -> str:
    """Write the folder atomically, replacing an earlier site; return the text of its first page."""
    check_place(out)
    sets = data_sets(runs)
    pages = {page_name(run): model_page(run, sets) for run in runs}
    index = leaderboard(runs, sets, title=title, command=command)
    try:
        fresh = out.with_name(f".{out.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        with atomic.new_folder(fresh) as folder:
            (folder / MODELS).mkdir()
            for name, text in pages.items():
                (folder / MODELS / name).write_text(text, encoding="utf-8")
            (folder / INDEX).write_text(index, encoding="utf-8")
        _replace_site(fresh, out)
    except OSError as error:
        raise HoldfastError(f"out must be a writable folder, got {str(out)!r} ({error.strerror})") from error
    return index


def check_place(out: Path) -> None:
    """Refuse a folder that holds anything but an earlier site."""
    if not out.parent.is_dir():
        raise HoldfastError(f"out must be a writable folder, got {str(out)!r} ({str(out.parent)!r} does not exist)")
    if out.is_dir() and any(out.iterdir()) and MARK not in _read_beginning(out / INDEX):
        raise HoldfastError(
            f"out must be a new folder or a leaderboard to replace, got {str(out)!r}, which holds other files"
        )
    if out.exists() and not out.is_dir():
        raise HoldfastError(f"out must be a folder for --format site, got the file {str(out)!r}")


def leaderboard(runs: Sequence[Run], sets: Sequence[DataSet], *, title: str = "", command: str = "") -> str:
    """Render the page with all models."""
    return render_page(
        "site.html.j2",
        title=clean_name(title) or "Leaderboard",
        mark=MARK,
        rankings=[
            rank_models(data, name, number) for number, (data, name) in enumerate(zip(sets, titles(sets), strict=True))
        ],
        columns=COLUMNS,
        address=lambda entry: f"{MODELS}/{quote(page_name(entry.run))}",
        unmeasured=[run for run in runs if not any(records.cells for records in run.records)],
        meanings=meanings(sets),
        command=command,
        runs=runs,
    )


def rank_models(data: DataSet, title: str, number: int) -> Ranking:
    """Rank the models of a data set, best first by `DataSet.ranked_by`."""
    by, table = data.ranked_by, all_table(data)
    rows = sorted(table.rows, key=lambda row: _place(row, by)) if by is not None else table.rows
    table = replace(table, rows=[replace(row, group="") for row in rows])
    return Ranking(
        anchor=f"ranking-{number + 1}",
        title=title,
        protocol=PROTOCOLS.get(data.protocol, data.protocol),
        description=which_images(data),
        table=table,
        ranked_by=by.label if by is not None else "",
        headline=frozenset(each.score.name for each in table.columns if is_headline(each.score, data.task)),
        places=places_of(table, by.name if by is not None else ""),
        facts={row.entry: _facts(row.entry) for row in rows},
        papers=published_tables(data),
    )


def places_of(table: Table, score: str) -> dict[Entry, str]:
    """Rank of every row by its printed score; ties share a rank, and rows without the score have none."""
    place = next((place for place, column in enumerate(table.columns) if column.score.name == score), None)
    printed = [NOT_MEASURED if place is None else table.columns[place].text(row.cells[place]) for row in table.rows]
    return {
        row.entry: NOT_MEASURED if text == NOT_MEASURED else str(printed.index(text) + 1)
        for row, text in zip(table.rows, printed, strict=True)
    }


def _facts(entry: Entry) -> list[ModelFact]:
    run = entry.run
    parameters, link = (
        run.parameters,
        next((url for part, url in PAPERS.items() if part in (run.architecture or "")), ""),
    )
    return [
        ModelFact(run.architecture or NOT_MEASURED, None, link),
        ModelFact(number(parameters / 1e6) if parameters else NOT_MEASURED, parameters),
        ModelFact(number(run.gmacs, digits=2) if run.gmacs else NOT_MEASURED, run.gmacs),
    ]


def page_name(run: Run) -> str:
    """File name of a model's page; numbered, since names may differ only in characters that files cannot have."""
    return f"{run.number + 1:03d}-{file_name(run.name, allowed='-_')[:60]}.html"


def _place(row: Row, by: Any) -> tuple[bool, float]:
    entry: Entry = row.entry
    if by.name not in entry.summary:
        return True, 0.0
    value = entry.summary[by.name].value
    return False, value if by.better == "low" else -value


def _read_beginning(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(2000)
    except OSError:
        return ""


def _replace_site(fresh: Path, out: Path) -> None:
    old = out.with_name(f".{out.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if out.exists():
        os.rename(out, old)
    os.rename(fresh, out)
    shutil.rmtree(old, ignore_errors=True)
