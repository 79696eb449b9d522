"""Reader of run folders for reports: records, recipe, log and analyses, without building a model."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from holdfast.analysis.results import FOLDER as ANALYSIS
from holdfast.analysis.results import AnalysisResult, load_results
from holdfast.errors import HoldfastError, nearest
from holdfast.io.yaml import read_yaml
from holdfast.records.model_files import outdated
from holdfast.records.records import HEADER, CellRecord, Records, load_records
from holdfast.registry import model_spec
from holdfast.reporting.formatting import clean_name, distinct_names, short_spec

OWN_FILES = ("recipe.yaml", "records", "log.jsonl", "analysis", HEADER)
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")  # buffers of normalisation layers, not trained


@dataclass(frozen=True, eq=False)
class Run:
    """The contents of one run's folder.

    Attributes:
        name: unique name in the report.
        number: index in the report, which determines the colour.
        folder: the folder; None for records in memory.
        records: one record set per evaluated data set.
        recipe: contents of ``recipe.yaml``, if any.
        log: the lines of ``log.jsonl``.
        results: results of ``holdfast analyze``.
        parameters: number of parameters in ``model.safetensors``, without running statistics.
        notes: sentences about unreadable files.
    """

    name: str
    number: int
    folder: Path | None = None
    records: Sequence[Records] = ()
    recipe: Mapping[str, Any] = field(default_factory=dict)
    log: Sequence[Mapping[str, Any]] = ()
    results: Sequence[AnalysisResult] = ()
    parameters: int | None = None
    notes: Sequence[str] = ()

    @property
    def architecture(self) -> str | None:
        """The timm name of the model, if the files contain it."""
        model = self.recipe.get("model")
        if isinstance(model, Mapping) and model.get("name"):
            arguments = model.get("kwargs")
            tap = "tap_" if isinstance(arguments, Mapping) and arguments.get("tap") == "tap" else ""
            return tap + str(model["name"]).split(".", maxsplit=1)[0]
        specs = [model_spec(str(records.header.get("model", ""))) for records in self.records]
        return next((spec.architecture for spec in specs if spec.kind == "timm"), None)

    @property
    def group(self) -> str:
        """Name of the parent folder, which the runs of one recipe in a study share."""
        return clean_name(self.folder.absolute().parent.name) if self.folder is not None else ""

    @property
    def gmacs(self) -> float | None:
        """Multiply-accumulates per image in units of 10⁹, if an analysis counted them."""
        costs = [result.header.get("cost") for result in self.results]
        counted = [cost["gmacs"] for cost in costs if isinstance(cost, Mapping) and "gmacs" in cost]
        return float(counted[0]) if counted else None


def read_runs(runs: Iterable[Path | str | Records], *, names: Sequence[str] = ()) -> list[Run]:
    """Read run folders or records in memory, in this order; raises an error if all are empty."""
    given = [each for run in runs for each in _within(run)]
    if not given:
        raise HoldfastError("runs must name at least one run folder, got none")
    if names and len(names) != len(given):
        raise HoldfastError(f"names must be one per run, got {len(names)} for {len(given)} runs")
    labels = distinct_names([clean_name(name) for name in (names or _own_names(given))])
    read = [
        _read_run(run, name=name, number=number) for number, (run, name) in enumerate(zip(given, labels, strict=True))
    ]
    if not any(run.records or run.log or run.results for run in read):
        raise HoldfastError(
            f"no results to report in {', '.join(repr(str(run.folder)) for run in read)}; "
            "run `holdfast evaluate RUN` first"
        )
    return read


def choose_records(runs: Sequence[Run], *, data: Sequence[str] = (), suites: Sequence[str] = ()) -> list[Run]:
    """Restrict the runs to some data sets and suites; raises an error for unknown ones."""
    specs = [_data_of(records) for run in runs for records in run.records]
    found = [_suite_of(cell) for run in runs for records in run.records for cell in records.cells.values()]
    for word in data:
        if not any(_is_of(spec, word) for spec in specs):
            raise HoldfastError(_not_there("data", word, specs))
    for word in suites:
        if word not in found:
            raise HoldfastError(_not_there("suite", word, found))
    return [replace(run, records=_matching_records(run.records, data, suites)) for run in runs]


def _matching_records(sets: Sequence[Records], data: Sequence[str], suites: Sequence[str]) -> tuple[Records, ...]:
    of_data = [records for records in sets if not data or any(_is_of(_data_of(records), word) for word in data)]
    if not suites:
        return tuple(of_data)
    return tuple(
        records.only([name for name, cell in records.cells.items() if _suite_of(cell) in suites]) for records in of_data
    )


def _data_of(records: Records) -> str:
    return str(records.header.get("data", ""))


def _suite_of(cell: CellRecord) -> str:
    return str(cell.header.get("suite", cell.spec.family))


def _is_of(spec: str, word: str) -> bool:
    return spec == word or spec.partition(":")[0] == word


def _not_there(what: str, word: str, known: Sequence[str]) -> str:
    there = list(dict.fromkeys(known))
    return f"{what} must be one of {', '.join(there) or 'nothing'} in these runs, got {word!r}{nearest(word, there)}"


def _within(run: Path | str | Records) -> Sequence[Path | Records]:
    """Return the run itself, or all runs below a folder that is not a run: those of a study, or one per λ."""
    if isinstance(run, Records):
        return [run]
    folder = Path(run).expanduser()
    if folder.is_file():
        raise HoldfastError(f"a run must be a folder, but {str(run)!r} is a file; did you mean {str(folder.parent)!r}?")
    if not folder.is_dir():
        raise HoldfastError(f"a run must be a folder, but {str(run)!r} does not exist")
    phases = not (folder / "log.jsonl").exists() and any(folder.glob("*/recipe.yaml"))  # its runs are below
    own = [name for name in OWN_FILES if not (phases and name == "recipe.yaml")]
    if any((folder / name).exists() for name in own) or any(folder.glob(f"*/{HEADER}")):
        return [folder]
    below = {path.parent for name in OWN_FILES for path in folder.glob(f"*/**/{name}") if path.name != HEADER}
    return sorted(below) or [folder]


def _own_names(runs: Sequence[Path | str | Records]) -> list[str]:
    """Names of the folders, with as much of the path as makes them distinct."""
    folders = [Path(run) for run in runs if not isinstance(run, Records)]
    parts = {path: path.expanduser().absolute().parts for path in folders}
    depth = 1
    while len({parts[path][-depth:] for path in parts}) < len(set(parts.values())):
        depth += 1
    return [
        _records_name(run) if isinstance(run, Records) else os.path.join(*parts[Path(run)][-depth:]) for run in runs
    ]


def _records_name(records: Records) -> str:
    name = str(records.header.get("model") or "model")
    return short_spec(name.removeprefix("run:")) if name.startswith("run:") else short_spec(name)


def _read_run(run: Path | str | Records, *, name: str, number: int) -> Run:
    if isinstance(run, Records):
        return Run(name, number, records=(run,))
    folder = Path(run)
    notes: list[str] = []
    records = load_records(folder)
    before = [each.folder.name for each in outdated(records, folder) if each.folder is not None]
    notes += [f"{name} was measured with earlier weights of the run; evaluate it again" for name in before]
    return Run(
        name,
        number,
        folder=folder,
        records=tuple(records),
        recipe=_recipe(folder / "recipe.yaml", notes),
        log=_log(folder / "log.jsonl", notes),
        results=_results(folder, notes),
        parameters=_parameters(folder / "model.safetensors", notes),
        notes=tuple(notes),
    )


def _recipe(path: Path, notes: list[str]) -> Mapping[str, Any]:
    try:
        values = read_yaml(path.read_text(encoding="utf-8"), name=path.name) if path.exists() else {}
    except (OSError, ValueError):
        values = None
    if not isinstance(values, Mapping):
        notes.append(f"{path.name} cannot be read")
        return {}
    return values


def _log(path: Path, notes: list[str]) -> tuple[Mapping[str, Any], ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    except (OSError, ValueError):
        notes.append(f"{path.name} cannot be read")
        return ()
    entries = [entry for entry in map(_entry, lines) if entry is not None]
    if len(entries) < len(lines):
        notes.append(f"{len(lines) - len(entries)} lines of {path.name} cannot be read")
    return tuple(entries)


def _entry(line: str) -> Mapping[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):  # truncated by a kill
        return None
    whole = isinstance(entry, Mapping) and isinstance(entry.get("event"), str) and isinstance(entry.get("step"), int)
    return entry if whole else None


def _results(folder: Path, notes: list[str]) -> tuple[AnalysisResult, ...]:
    if not (folder / ANALYSIS).is_dir():
        return ()
    try:
        return tuple(load_results(folder))
    except HoldfastError as error:
        notes.append(str(error))
        return ()


def _parameters(path: Path, notes: list[str]) -> int | None:
    """Count parameters from the shapes in the file's header, without reading weights."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            names = [name for name in file.keys() if not name.endswith(STATISTICS)]  # noqa: SIM118 (not a mapping)
            return sum(prod(file.get_slice(name).get_shape()) for name in names)
    except (OSError, SafetensorError):
        notes.append(f"{path.name} cannot be read")
        return None
