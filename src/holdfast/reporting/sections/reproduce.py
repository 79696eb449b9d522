"""Reproduction section: the commands behind the numbers, and the runs' metadata."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from holdfast.analysis.base import plain
from holdfast.analysis.registry import all_settings
from holdfast.corruptions.severities import EXTRA
from holdfast.metrics.scoring.registry import scoring_of
from holdfast.plotting.style import marker_number
from holdfast.plotting.svg import page_colour
from holdfast.records.class_map import class_map_options
from holdfast.records.records import Records
from holdfast.reporting.runs import Run


@dataclass(frozen=True)
class Named:
    """A run's name and colour, without scores."""

    name: str
    number: int
    view: str = ""

    @property
    def colour(self) -> str:
        """The colour of the run on the page."""
        return page_colour(self.number)

    @property
    def shape(self) -> int:
        """The number of the run's marker."""
        return marker_number(self.number)


@dataclass(frozen=True)
class Origin:
    """Origin of a run: commands, metadata and recipe."""

    entry: Named
    commands: Sequence[str]
    facts: Sequence[tuple[str, str]]
    recipe: str
    notes: Sequence[str]


def name_run(run: Run) -> Named:
    """Name and colour of a run for tables."""
    return Named(run.name, run.number)


def origin(run: Run) -> Origin:
    """Collect commands, metadata and recipe of a run from its files."""
    recipe = yaml.safe_dump(dict(run.recipe), sort_keys=False, allow_unicode=True) if run.recipe else ""
    return Origin(name_run(run), commands(run), facts(run), recipe, run.notes)


def commands(run: Run) -> list[str]:
    """The command lines that train, evaluate and analyse it."""
    lines = []
    if run.folder is not None and run.recipe:
        lines.append(_line("holdfast", "train", str(run.folder / "recipe.yaml"), "--out", f"{run.folder}-again"))
    lines += [evaluate_command(run, records) for records in run.records]
    lines += dict.fromkeys(analyze_command(run, data) for data in _analysis_commands(run))
    return lines


def evaluate_command(run: Run, records: Records, *, limit: int | None = None) -> str:
    """The command line of one record set, or of the same one with another number of images."""
    header = records.header
    suites = dict.fromkeys(str(cell.header.get("suite", name)) for name, cell in records.cells.items())
    words = ["holdfast", "evaluate", model_word(run, header), "--data", str(header.get("data", ""))]
    named = [suite for suite in suites if ":" not in suite]  # the others are attacks with settings
    words += ["--suite", ",".join(named)] if named else []
    words += [word for suite in suites if ":" in suite for word in ("--attack", suite)]
    images = limit if limit is not None else header.get("limit")
    words += ["--limit", str(images)] if images is not None else []
    words += class_map_options(header) + _given_options(header)
    words += ["--seed", str(header["seed"])] if header.get("seed") else []
    words += ["--amp"] if header.get("amp") not in (None, "no") else []
    words += ["--extra"] if any(cell.spec.kind in EXTRA for cell in records.cells.values()) else []
    steps = header.get("preprocessing") or {}
    words += ["--stored-jpeg"] if "JPEG" in str(steps.get("after_corruption")) else []
    known = scoring_of(records.task).one_class and "protocol" in steps
    words += ["--preparation", "benchmark"] if known and "preparation" not in steps else []
    return _line(*words)


def _given_options(header: Mapping[str, Any]) -> list[str]:
    """The given options of the model's input and output, as ``EvalProtocol.given`` stored them."""
    words: list[str] = []
    for name, value in (header.get("options") or {}).items():
        words += [f"--{name.replace('_', '-')}", *_option_words(name, value)]
    return words


def _option_words(name: str, value: Any) -> list[str]:
    if name == "probabilities":
        return ["yes" if value else "no"]
    if name == "size" and isinstance(value, list):
        return ["x".join(map(str, value))]
    if name == "window" and isinstance(value, list):
        return [str(value[0])]  # the command line has square windows
    if value is True:
        return []
    return [str(each) for each in (value if isinstance(value, list) else [value])]


def analyze_command(run: Run, data: str) -> str:
    """The command line of the analyses on one data set, with its settings."""
    results = [result for result in run.results if str(result.header.get("data", "")) == data]
    header = results[0].header
    settings = {key: value for result in results for key, value in (result.header.get("settings") or {}).items()}
    words = ["holdfast", "analyze", model_word(run, header), "--data", data]
    words += ["--limit", str(header["images"])] if header.get("images") else []
    words += ["--seed", str(header["seed"])] if header.get("seed") else []
    for name, setting in all_settings().items():
        if name in settings and settings[name] != plain(setting.default):
            value = settings[name]
            words += [setting.flag, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return _line(*words)


def _analysis_commands(run: Run) -> list[str]:
    return list(dict.fromkeys(str(result.header.get("data", "")) for result in run.results))


def facts(run: Run) -> list[tuple[str, str]]:
    """Metadata of a run: architecture, parameters, fingerprints, preprocessing, versions."""
    found: list[tuple[str, str]] = []
    if run.folder is not None:
        found.append(("folder", str(run.folder)))
    for key, value in (("architecture", run.architecture), ("parameters", run.parameters)):
        if value:
            found.append((key, f"{value:,}" if isinstance(value, int) else value))
    for records in run.records:
        known = [*_record_facts(records.header), *_set_facts(records)]
        found += [fact for fact in known if fact not in found]
    return [(key, " ".join(value.split())) for key, value in found]


def own_command(runs: Sequence[Run], out: Path | None, **options: str) -> str:
    """The command line of the page itself, with non-empty options; records in memory are omitted."""
    folders = [str(run.folder) for run in runs if run.folder is not None]
    given = [word for name, value in options.items() if value for word in (f"--{name}", value)]
    return _line("holdfast", "report", *(folders or ["RUN"]), *given, "--out", str(out or "report.html"))


def _record_facts(header: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = [("model", header.get("model")), ("weights", header.get("model_fingerprint")), ("data", header.get("data"))]
    found += [("images", header.get("data_fingerprint")), ("contents", header.get("data_content"))]
    found.append(("seed of corruptions", header.get("seed")))
    steps = header.get("preprocessing")
    if isinstance(steps, Mapping):
        found.append(("preprocessing", ", ".join(f"{key} {_short(value)}" for key, value in steps.items())))
    versions = header.get("versions")
    if isinstance(versions, Mapping):
        found.append(("versions", ", ".join(f"{name} {version}" for name, version in versions.items())))
    return [(key, str(value)) for key, value in found if value not in (None, "")]


def _set_facts(records: Records) -> list[tuple[str, str]]:
    """Preprocessing of official sets, which may differ from the rest: cue conflict stimuli are not cropped."""
    sets = [cell for cell in records.cells.values() if cell.spec.family == "set"]
    steps = {cell.spec.name: cell.header.get("preprocessing") or () for cell in sets}
    return [(f"preprocessing of {name}", ", ".join(map(str, words))) for name, words in steps.items() if words]


def _short(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"({', '.join(_short(each) for each in value)})"
    return f"{value:g}" if isinstance(value, float) else str(value)


def model_word(run: Run, header: Mapping[str, Any]) -> str:
    """The model as on a command line: the run's folder, or the spec that was evaluated."""
    return str(run.folder) if run.folder is not None and run.recipe else str(header.get("model", "MODEL"))


def _line(*words: str) -> str:
    return " ".join(shlex.quote(" ".join(word.split()) if "\n" in word else word) for word in words)
