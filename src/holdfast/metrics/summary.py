"""``summarise``: named scores with definitions and confidence intervals from records; needs no model."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.io.html_table import table
from holdfast.metrics.corruption import alexnet_errors
from holdfast.metrics.custom import own_formulas
from holdfast.metrics.replicates import ImageChoice, Replicates, replicate_cells, used_images
from holdfast.metrics.score_intervals import interval_note, interval_of_score
from holdfast.metrics.score_lookup import key_of, why_not
from holdfast.metrics.scoring.base import Key, Reference, ScoreDefinition
from holdfast.metrics.scoring.registry import scoring_of
from holdfast.published import published
from holdfast.records.compatibility import like
from holdfast.records.records import CellRecord, Passes, Records, import_pandas

if TYPE_CHECKING:
    import pandas

NOT_PREPARATION = ("corruption", "JPEG quality 85")  # steps of a cell that are no preprocessing


@dataclass(frozen=True)
class Score:
    """One score with its interval, unit and definition.

    Attributes:
        name: ``mce``, ``accuracy/fog``, ``attack/pgd5`` …; a partial score is called ``…_partial``.
        value: value in ``unit``.
        low: lower bound of the interval over the sampling of images; NaN if none was computed.
        high: upper bound of the interval.
        unit: ``%``, ``% of AlexNet``, ``nats``, ``ranks``.
        label: label in tables.
        definition: the definition in one sentence.
        better: ``high`` or ``low``; empty if neither is better.
        note: note that accompanies the number.
        missing: missing cells of a partial score; empty if it is complete.
        family: family of its cells, if they share one.
        table: table with a column per kind that it belongs to; empty for single scores.
        kind: corruption, sequence, attack, set, condition or domain that it measures.
        headline: whether reports show it in the first table, beside the task's headline scores.
    """

    name: str
    value: float
    low: float
    high: float
    unit: str
    label: str
    definition: str
    better: str
    note: str = ""
    missing: tuple[str, ...] = ()
    family: str = ""
    table: str = ""
    kind: str = ""
    headline: bool = False

    @property
    def partial(self) -> bool:
        """Whether cells are missing, so that it differs from the score of its name without ``_partial``."""
        return self.name.endswith("_partial")

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        text = f"{self.label} {self.value:.2f} {self.unit}"
        return f"{text} ({bounds})" if (bounds := _bounds(self)) else text


@dataclass(frozen=True)
class Summary:
    """All scores of one model (or of one of its views) on one data set.

    Attributes:
        header: header of the records: model, data, label, preset, seed …
        view: view of the model.
        images: number of images.
        excluded: number of unreadable images, which are excluded.
        scores: scores by name, in the order of tables.
        unfinished: incomplete cells, which are excluded.
        interval_note: limits of the intervals: few images, few objects, blocks of frames.
        passes: passes of an evaluation that stopped early; None of a complete one.
    """

    header: Mapping[str, Any]
    view: str
    images: int
    excluded: int
    scores: Mapping[str, Score]
    unfinished: tuple[str, ...] = ()
    interval_note: str = ""
    passes: Passes | None = None

    def __getitem__(self, name: str) -> Score:
        if name in self.scores:
            return self.scores[name]
        partial = self.scores.get(f"{name}_partial")
        if partial is not None:
            raise HoldfastError(
                f"score {name!r} is only available in part, as {partial.name!r}: {some(partial.missing)} missing"
            )
        found = key_of(name, {key: score.label for key, score in self.scores.items()})
        if found is not None:
            return self.scores[found]
        why = why_not(name, self.scores, self.header)
        raise HoldfastError(f"score must be one that the records allow, got {name!r}{why}")

    def __contains__(self, name: object) -> bool:
        return name in self.scores

    def __iter__(self) -> Iterator[Score]:
        return iter(self.scores.values())

    def __len__(self) -> int:
        return len(self.scores)

    def __str__(self) -> str:
        lines = [str(self.passes)] if self.passes is not None else []
        return "\n".join([*lines, *map(str, self)])

    def __repr__(self) -> str:
        widest = max((len(score.label) for score in self), default=0)
        lines = [
            f"  {score.label:<{widest}} {score.value:8.2f} {score.unit}  {_bounds(score)}".rstrip() for score in self
        ]
        return "\n".join([f"{self._title}, {self.images} images", *lines])

    def to_dict(self) -> dict[str, Any]:
        """Model, data, view and every score as plain data for JSON; None for bounds that were not computed."""
        names = ("value", "low", "high", "unit", "label", "definition", "better", "note")
        scores = {
            score.name: {**{name: _finite(getattr(score, name)) for name in names}, "missing": list(score.missing)}
            for score in self
        }
        header = {name: self.header.get(name) for name in ("model", "data", "label", "preset", "seed")}
        return {**header, "view": self.view, "images": self.images, "excluded": self.excluded, "scores": scores}

    def to_pandas(self) -> "pandas.DataFrame":
        """A DataFrame with a row per score, by its name: label, value, bounds of the interval, unit and definition."""
        columns = ["label", "value", "low", "high", "unit", "definition"]
        rows = [[getattr(score, column) for column in columns] for score in self]
        index = [score.name for score in self]
        return import_pandas().DataFrame(rows, columns=columns, index=index).rename_axis("score")

    @property
    def _title(self) -> str:
        view = f" ({self.view})" if self.view else ""
        return f"{self.header.get('model', 'model')}{view} on {self.header.get('data', 'data')}"

    def _repr_html_(self) -> str:
        """HTML table of the scores for notebooks."""
        rows = [(score.label, f"{score.value:.2f} {score.unit}", _bounds(score), score.definition) for score in self]
        caption = f"{self.header.get('model', 'model')} on {self.header.get('data', 'data')}, {self.images} images"
        caption += f", {self.passes}" if self.passes is not None else ""
        return table(caption, ("score", "value", "95 % interval", "what it is"), rows)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


def summarise(
    records: Records,
    *,
    baseline: Records | None = None,
    clean: Records | None = None,
    intervals: bool = True,
    images: ImageChoice | None = None,
) -> Summary:
    """Compute every score that the cells of these records allow.

    Args:
        records: records of one model on one data set; of several views, the current one.
        baseline: records of the baseline of CE, mFR and mT5D. By default AlexNet where its published errors apply:
            the 1000 classes of ImageNet at 224 px. There is no mCE for other data.
        clean: records with the ``clean`` cell, if ``records`` belong to a stored set without one.
        intervals: whether to compute 95 % intervals (delete-a-group jackknife over the images).
        images: ``shared`` for the images that all cells have, ``own`` for every cell's own images; by default ``own``
            for records of an evaluation that stopped early, else ``shared``.
    """
    cells = with_clean(records, clean)
    used = used_images(cells, images=images or image_choice(records))
    groups = used.groups() if intervals and len(used.ids) else None
    replicates = replicate_cells(cells, used, groups)
    formulas = formulas_of(records, cells, replicates, reference=reference_for(records, baseline))
    scores = [score_of(formula, replicates, cells) for formula in formulas]
    return Summary(
        records.header,
        records.current,
        len(used.ids),
        len(records.excluded),
        {score.name: score for score in scores},
        unfinished=tuple(records.incomplete),
        interval_note=interval_note(cells, used.ids, groups, task=records.task) if groups is not None else "",
        passes=records.passes,
    )


def image_choice(*models: Records) -> ImageChoice:
    """``own`` if an evaluation stopped early, so that every cell has images of its own."""
    return "own" if any(records.passes is not None for records in models) else "shared"


def formulas_of(
    records: Records,
    cells: Mapping[str, CellRecord],
    columns: Collection[Key],
    *,
    reference: Reference | None,
) -> list[ScoreDefinition]:
    """Score definitions of the task for these cells, then the registered custom ones."""
    specs = [cell.spec for cell in cells.values()]
    known = scoring_of(records.task).formulas(specs, columns=list(columns), header=records.header, reference=reference)
    return [*known, *own_formulas(specs, task=records.task)]


def with_clean(records: Records, clean: Records | None) -> Mapping[str, CellRecord]:
    """Cells of the records, with the clean cell of ``clean`` if they have none."""
    if clean is None or clean_cell(records) is not None:
        return records.cells
    found = clean_cell(clean)
    if found is None:
        raise HoldfastError("clean must be records with the cell 'clean', but they have none: evaluate the suite clean")
    return {found: clean.cells[found], **records.cells}


def clean_cell(records: Records) -> str | None:
    """Name of the clean cell, if there is one."""
    return next((name for name, cell in records.cells.items() if cell.spec.family == "clean"), None)


def score_of(formula: ScoreDefinition, replicates: Replicates, cells: Mapping[str, CellRecord]) -> Score:
    """Compute a score and its interval from its definition."""
    bounds = interval_of_score(formula, replicates)
    return Score(
        name=formula.name,
        value=bounds.value,
        low=bounds.low,
        high=bounds.high,
        unit=formula.unit,
        label=formula.label,
        definition=formula.definition,
        better=formula.better,
        note="; ".join(filter(None, (formula.note, _remark(formula, cells)))),
        missing=formula.missing,
        family=formula.family,
        table=formula.table,
        kind=formula.kind,
        headline=formula.headline,
    )


def _remark(formula: ScoreDefinition, cells: Mapping[str, CellRecord]) -> str:
    """The task's remark on an attack, or a note that clean and corrupted images were preprocessed differently."""
    if {cells[name].spec.family for name, _ in formula.reads if name in cells} == {"clean", "corruption"}:
        return _two_preparations(cells)
    if formula.family != "attack":
        return ""
    cell = cells[formula.cells[0]]
    return scoring_of(cell.task).remark(cell)


def _two_preparations(cells: Mapping[str, CellRecord]) -> str:
    """A note if the recorded preprocessing of clean and corrupted images differs."""
    ways: dict[str, tuple[str, ...]] = {}
    for cell in cells.values():
        steps = cell.header.get("preprocessing") or ()
        ways.setdefault(cell.spec.family, tuple(step for step in steps if step not in NOT_PREPARATION))
    clean, corrupted = ways.get("clean", ()), ways.get("corruption", ())
    if not clean or not corrupted or clean == corrupted:
        return ""
    both = "; ".join(", then ".join(steps) for steps in (clean, corrupted))
    return f"clean and corrupted images are prepared differently: {both}"


def reference_for(records: Records, baseline: Records | None) -> Reference | None:
    """The baseline: the given records, or AlexNet if its published errors belong to these images."""
    if baseline is not None:
        return _measured_reference(like(records, baseline))
    ours = scoring_of(records.task).one_class and records.header.get("preset") == "imagenet"
    if not ours or records.header.get("classes") != 1000:
        return None
    table = published("alexnet")
    reference = Reference("AlexNet", alexnet_errors(extras=True), table["clean_error"])
    if records.header.get("label") != "official":
        return reference  # AlexNet's flip probabilities were measured on the distributed, lossy videos
    quoted = table["flip_probabilities"]["values"]
    note = "AlexNet's flip probabilities as widely quoted"
    return Reference(reference.name, reference.errors, reference.clean_error, flips=quoted, flips_note=note)


def _measured_reference(baseline: Records) -> Reference:
    replicates = replicate_cells(baseline.cells, used_images(baseline.cells), None)
    formulas = formulas_of(baseline, baseline.cells, replicates, reference=None)
    values = {formula.name: float(replicates.score(formula)[0]) for formula in formulas}

    def by_kind(family: str, table: str | None = None) -> dict[str, float]:
        of_kind = [f for f in formulas if f.family == family and f.table and table in (None, f.table) and not f.missing]
        return {formula.kind: values[formula.name] for formula in of_kind}

    return Reference(
        str(baseline.header.get("model", "the baseline")),
        {kind: 1 - value / 100 for kind, value in by_kind("corruption").items()},
        1 - values["clean"] / 100 if "clean" in values else None,
        flips={kind: value / 100 for kind, value in by_kind("sequence", "fp").items()},
        distances=by_kind("sequence", "t5d"),
    )


def _bounds(score: Score) -> str:
    return "" if np.isnan(score.low) else f"{score.low:.2f} to {score.high:.2f}"


def some(names: Sequence[str], *, count: int = 5) -> str:
    """The first few names, and the number of the others."""
    return ", ".join(names[:count]) + (f" and {len(names) - count} more" if len(names) > count else "")
