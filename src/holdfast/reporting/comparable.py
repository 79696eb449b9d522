"""Groups of comparable records: the same images, protocol and task, one group per data set of the report."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from holdfast.metrics.summary import Score, Summary, summarise
from holdfast.plotting.style import marker_number
from holdfast.plotting.svg import page_colour
from holdfast.records.class_map import answer_protocol, class_map_words
from holdfast.records.compatibility import without_older
from holdfast.records.header import CLASSIFICATION
from holdfast.records.records import Records
from holdfast.reporting.export.tables import clean_elsewhere
from holdfast.reporting.formatting import clean_name, list_names, short_spec
from holdfast.reporting.runs import Run

MANY = 12  # models per figure; with more, figures show the first and the best, and tables are grouped and searchable
# header keys by which record sets of one run on the same images may differ
APART = ("seed", "amp", "model_fingerprint", "preprocessing", "frost", "attack_batch_size", "shard_size", "versions")


@dataclass(frozen=True, eq=False)
class Entry:
    """One prediction of one run on one data set.

    Attributes:
        run: the run.
        records: its records, restricted to this view.
        summary: the scores.
        view: the view's name if the model has several predictions, else empty.
    """

    run: Run
    records: Records
    summary: Summary
    view: str = ""

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.run.name

    @property
    def number(self) -> int:
        """The index of the run in the report."""
        return self.run.number

    @property
    def label(self) -> str:
        """The names of run and view."""
        return f"{self.name} · {self.view}" if self.view else self.name

    @property
    def colour(self) -> str:
        """The colour of the run on the page."""
        return page_colour(self.run.number)

    @property
    def shape(self) -> int:
        """The number of the run's marker, which tells models of one colour apart."""
        return marker_number(self.run.number)

    @property
    def is_main(self) -> bool:
        """Whether this is the prediction of the model's forward pass; other views are listed below it."""
        return self.records.current == self.records.views[0]


@dataclass(frozen=True, eq=False)
class DataSet:
    """Comparable runs, evaluated on the same images with the same protocol."""

    spec: str
    protocol: str
    preset: str
    fingerprint: str
    entries: Sequence[Entry]
    task: str = CLASSIFICATION

    @property
    def title(self) -> str:
        """The data in a heading: without the folders of a path."""
        return short_spec(self.spec)

    @property
    def models(self) -> list[Entry]:
        """One entry per run and record set, without the other views."""
        return [entry for entry in self.entries if entry.is_main]

    @property
    def baseline(self) -> Entry:
        """The first run that was evaluated on this data set."""
        return self.models[0]

    @property
    def many(self) -> bool:
        """Whether there are more models than a figure can show."""
        return len(self.models) > MANY

    @cached_property
    def shown_models(self) -> list[Entry]:
        """The models in figures: all, or the first and the best by `ranked_by`."""
        if not self.many:
            return self.models
        by = self.ranked_by
        others = [entry for entry in self.models[1:] if by is not None and by.name in entry.summary]
        best = sorted(others, key=lambda e: e.summary[by.name].value, reverse=by.better == "high")[: MANY - 1]
        return [entry for entry in self.models if entry is self.baseline or entry in best]

    @cached_property
    def ranked_by(self) -> Score | None:
        """The score of the ranking: the mean over corruptions, else the clean score, else the first score."""
        scores = list(self.baseline.summary)
        corrupted = [score for score in scores if score.family == "corruption" and not score.kind]
        return next(iter([*corrupted, *(score for score in scores if score.name == "clean"), *scores]), None)

    @cached_property
    def seed_groups(self) -> dict[str, list[Entry]]:
        """Models by recipe without its seed, as far as they have a recipe."""
        found: dict[str, list[Entry]] = {}
        for entry in self.models:
            if entry.run.recipe:
                same = {key: value for key, value in entry.run.recipe.items() if key != "seed"}
                found.setdefault(json.dumps(same, sort_keys=True, default=str), []).append(entry)
        return found

    @cached_property
    def groups(self) -> dict[Entry, str]:
        """Groups of rows in long tables: the parent folders of the runs, if these are informative."""
        found = {entry: entry.run.group for entry in self.entries}
        telling = self.many and 1 < len(set(found.values())) < len(self.models)
        return found if telling else dict.fromkeys(found, "")


def data_sets(runs: Sequence[Run]) -> list[DataSet]:
    """All data sets of the runs, in the order in which they first appear."""
    groups: dict[tuple[str, ...], list[tuple[Run, Records]]] = {}
    contents: dict[str, set[str]] = {}
    for records in (records for run in runs for records in run.records if "data_content" in records.header):
        contents.setdefault(_fingerprint(records), set()).add(str(records.header["data_content"]))
    for run in runs:
        for records in run.records:
            if records.cells:
                key = _key(records, changed=len(contents.get(_fingerprint(records), ())) > 1)
                groups.setdefault(key, []).append((run, records))
    groups = {key: _by_one_definition(held) for key, held in groups.items()}
    return [
        _data_set(key, [e for pair in distinguish_entries(held) for e in _entries(*pair)])
        for key, held in groups.items()
    ]


def _by_one_definition(held: Sequence[tuple[Run, Records]]) -> list[tuple[Run, Records]]:
    current = without_older([records for _, records in held])
    return [(run, records) for (run, _), records in zip(held, current, strict=True) if records.cells]


def _data_set(key: tuple[str, ...], entries: Sequence[Entry]) -> DataSet:
    _, protocol, preset, fingerprint, task, _ = key
    spec = clean_name(entries[0].records.header.get("data", "data"))
    return DataSet(spec, protocol, preset, fingerprint, entries, task)


def distinguish_entries(held: Sequence[tuple[Run, Records]]) -> list[tuple[Run, Records]]:
    """Append to the run's name the settings by which its record sets on the same images differ."""
    pairs = []
    for run, records in held:
        others = [other.header for owner, other in held if owner is run and other is not records]
        differing = [key for key in APART if any(records.header.get(key) != other.get(key) for other in others)]
        what = ", ".join(f"{key.replace('_', ' ')} {_short(records.header.get(key))}" for key in differing)
        pairs.append((replace(run, name=clean_name(f"{run.name} ({what})")) if what else run, records))
    return pairs


def _fingerprint(records: Records) -> str:
    return str(records.header.get("data_fingerprint", ""))


def _key(records: Records, *, changed: bool) -> tuple[str, ...]:
    """Key of comparable record sets; copies of a data set in two folders have the same key.

    ``changed`` says that files of the same names and sizes were recorded with different contents.
    """
    header = records.header
    content = _fingerprint(records)
    if changed:
        content = str(header.get("data_content", content)).rpartition(" ")[2]
    spec = str(header.get("data", "data"))
    stored = header.get("label") != "on-the-fly"  # the fingerprint of stored sets covers only names and classes
    return (
        spec.partition(":")[0] if stored else "" if content else spec,
        str(header.get("label", "")),
        str(header.get("preset", "")),
        content,
        records.task,
        answer_protocol(header),
    )


def _entries(run: Run, records: Records) -> list[Entry]:
    several, clean = len(records.views) > 1, clean_elsewhere(records, run.records)
    entries = []
    for view in records.views:
        seen = records.view(view)
        other = clean.view(view) if clean is not None and view in clean.views else None
        entries.append(Entry(run, seen, summarise(seen, clean=other), clean_name(view) if several else ""))
    return entries


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_short(each)}" for key, each in value.items())
    return value[:8] if isinstance(value, str) else str(value)


def describe_data(data: DataSet) -> str:
    """Describe the images and the shown models."""
    return which_images(data) + _which(data)


def which_images(data: DataSet) -> str:
    """Describe the images in a sentence."""
    counts = sorted({entry.summary.images for entry in data.entries})
    images = f"{counts[0]} images" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} images"
    corrupted = any(cell.spec.family == "corruption" for entry in data.models for cell in entry.records.cells.values())
    on_the_fly = f"corrupted on the fly, preset {data.preset}" if corrupted else ""
    answers = "; ".join(dict.fromkeys(filter(None, (class_map_words(entry.records.header) for entry in data.models))))
    parts = [
        images,
        passes_words(data),
        answers,
        {"on-the-fly": on_the_fly, "official": "as distributed"}.get(data.protocol, data.protocol),
    ]
    return ", ".join(part for part in parts if part) + "."


def passes_words(data: DataSet) -> str:
    """How many passes evaluations that stopped early have used; empty if all are complete."""
    used = {entry.name: entry.summary.passes for entry in data.models if entry.summary.passes is not None}
    if len({*used.values()}) == 1 and len(used) == len(data.models):
        return str(next(iter(used.values())))
    return "; ".join(f"{name} {passes}" for name, passes in used.items())


def _which(data: DataSet) -> str:
    if not data.many or data.ranked_by is None:
        return ""
    best = f"the best {len(data.shown_models) - 1} of the others by {data.ranked_by.label}"
    return f" {len(data.models)} models: tables list all, figures and comparisons {data.baseline.name} and {best}."


def warnings_of(data: DataSet) -> list[str]:
    """Warnings about comparing the numbers of this data set."""
    lines: list[str] = []
    for key, what in {"seed": "seeds of corruptions and attacks", "frost": "frost textures"}.items():
        if len({str(entry.records.header.get(key)) for entry in data.models}) > 1:
            lines.append(f"The models were evaluated with different {what}, so part of their differences is random.")
    unread = {entry.name: entry.summary.excluded for entry in data.models if entry.summary.excluded}
    if unread:
        counts = list_names([f"{name}: {count}" for name, count in unread.items()], most=MANY)
        lines.append(f"Images could not be read and are excluded ({counts}).")
    open_cells = {entry.name: list(entry.records.incomplete) for entry in data.models if entry.records.incomplete}
    if open_cells:
        missing = list(dict.fromkeys(cell for cells in open_cells.values() for cell in cells))
        who = list_names(list(open_cells), most=MANY)
        lines.append(
            f"The evaluation of {who} is incomplete, so {list_names(missing)} are missing; rerun it to resume."
        )
    return lines
