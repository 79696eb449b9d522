"""Score definitions: name, what is read, and computation from quantities of cells.

A definition takes ``replicates["fog/3", "right"]`` and so on: arrays with the value of a quantity and its jackknife
replicates (`holdfast.metrics.replicates`), so a score and its interval share one computation, by the pure
functions of `holdfast.metrics.corruption` and `holdfast.metrics.flip_rate`. The score of a cell is the
task's `CellScore`; everything else is common to all tasks.

A score with missing cells is never reported under its name: it is called ``…_partial`` and lists them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from holdfast.benchmarks import BENCHMARKS, Benchmark, ScoreText, benchmarks_of
from holdfast.cells import CellSpec, corruption_cell
from holdfast.corruptions.severities import PUBLISHED, SEVERITIES
from holdfast.metrics.corruption import (
    Errors,
    Values,
    corruption_errors,
    mean_corruption_error,
    mean_of,
    relative_corruption_errors,
    retention,
)
from holdfast.metrics.intervals import Scale
from holdfast.records.header import CLASSIFICATION
from holdfast.registry import SUITES

Key = tuple[str, str]  # a cell and one of its quantities
Means = Mapping[Key, Values]
Compute = Callable[[Means], Values]

SETS = {
    "imagenet-a": "ImageNet-A",
    "imagenet-r": "ImageNet-R",
    "imagenet-sketch": "ImageNet-Sketch",
    "imagenet-v2": "ImageNet-V2",
    "imagenet-v2-threshold": "ImageNet-V2 (threshold 0.7)",
    "imagenet-v2-top": "ImageNet-V2 (top images)",
    "objectnet": "ObjectNet",
    "cue-conflict": "cue conflict",
}
CLASSES = {"imagenet-a": " (200 classes)", "imagenet-r": " (200 classes)", "objectnet": " (113 classes)"}
CLASSES["cue-conflict"] = ": the class of the shape, of 16"


@dataclass(frozen=True)
class ScoreDefinition:
    """Definition of one score: name, meaning and computation.

    Attributes:
        name: ``mce``, ``accuracy/fog``, ``attack/pgd5`` …, unique within a summary.
        label: label in tables.
        unit: ``%``, ``% of AlexNet``, ``nats``, ``ranks``.
        better: ``high`` or ``low``; empty if neither is better.
        definition: the definition in one sentence.
        compute: computes the score from the quantities of cells.
        note: note that accompanies the number.
        missing: missing cells of a partial score.
        family: family of its cells, if they share one: ``attack``, ``corruption`` …
        table: table with a column per kind that it belongs to, such as ``accuracy``; empty for single scores.
        kind: corruption, sequence, attack, set or condition that it measures.
        cells: cells that it is computed from.
        headline: whether reports show it in the first table, beside the task's headline scores.
        scale: shape of its interval: ``proportion`` from 0 to 100 %, ``ratio``, or ``plain``; by default a proportion
            in ``%``, a ratio in ``% of`` something, plain in any other unit.
        answers: the quantity whose mean it is, if it is one: if that is 0 or 1 for every image, the interval of
            a difference includes Bonett and Price's pseudo-pairs.
        reads: cells and quantities that it is computed from; a custom score that does not say so counts as reading
            everything.
        among: the 0/1 quantity of the images that it is a score of, if it is not one of all.
    """

    name: str
    label: str
    unit: str
    better: str
    definition: str
    compute: Compute
    note: str = ""
    missing: tuple[str, ...] = ()
    family: str = ""
    table: str = ""
    kind: str = ""
    cells: tuple[str, ...] = ()
    headline: bool = False
    scale: Scale | None = None
    answers: Key | None = None
    reads: tuple[Key, ...] = ()
    among: Key | None = None

    @property
    def interval_scale(self) -> Scale:
        """The given scale, or the default of the unit."""
        if self.scale is not None:
            return self.scale
        return "proportion" if self.unit == "%" else "ratio" if self.unit.startswith("% of") else "plain"


@dataclass(frozen=True)
class CellScore:
    """A task's score of one cell: a fraction from 0 to 1, higher is better.

    Attributes:
        name: part of score names: ``accuracy`` gives ``accuracy/fog`` and ``mean_corruption_accuracy``.
        label: label in sentences: ``top-1 accuracy``.
        mean_label: label of its mean over corruptions in tables: ``mCA``.
        of: computes it from the quantities and the name of a cell.
        answers: the quantity whose mean it is, if it is one.
        quantities: quantities that it is computed from, if there are others.
    """

    name: str
    label: str
    mean_label: str
    of: Callable[[Means, str], Values]
    answers: str = ""
    quantities: tuple[str, ...] = ()

    def column(self, cell: str) -> Key | None:
        """Key of the quantity whose mean it is; None if there is none."""
        return column(cell, self.answers) if self.answers else None

    def reads(self, *cells: str) -> tuple[Key, ...]:
        """Keys of the quantities that its values in some cells are computed from."""
        quantities = self.quantities or (self.answers,) * bool(self.answers)
        return tuple(column(cell, quantity) for cell in cells for quantity in quantities)


@dataclass(frozen=True)
class Reference:
    """Baseline that errors are divided by: AlexNet where it applies, or a record set of the same protocol."""

    name: str
    errors: Mapping[str, float] = field(default_factory=dict)
    clean_error: float | None = None
    flips: Mapping[str, float] = field(default_factory=dict)
    distances: Mapping[str, float] = field(default_factory=dict)
    flips_note: str = ""


def column(cell: str, quantity: str) -> Key:
    """Key of one quantity of one cell."""
    return cell, quantity


def shared_formulas(
    cells: Sequence[CellSpec], *, measure: CellScore, reference: Reference | None = None
) -> list[ScoreDefinition]:
    """Scores common to all tasks: clean, corruptions, conditions, other sets, attacks."""
    return [
        *clean_score(cells, measure),
        *corruption_scores(cells, measure=measure, reference=reference),
        *condition_scores(cells, measure),
        *single_scores(cells, measure),
    ]


def mean_score(
    measure: CellScore, cells: Sequence[str], name: str, label: str, text: str, **about: Any
) -> ScoreDefinition:
    """The mean of a cell's score over some cells, in percent."""
    names = tuple(cells)
    compute: Compute = lambda means: 100 * np.asarray(mean_of([measure.of(means, cell) for cell in names]))  # noqa: E731
    return ScoreDefinition(name, label, "%", "high", text, compute, cells=names, reads=measure.reads(*names), **about)


def clean_score(cells: Sequence[CellSpec], measure: CellScore) -> list[ScoreDefinition]:
    """The score of the clean cell, if there is one."""
    text = f"{measure.label} on the clean images"
    found = [cell.name for cell in cells if cell.family == "clean"][:1]
    return [mean_score(measure, [name], "clean", "clean", text, answers=measure.column(name)) for name in found]


def corruption_scores(
    cells: Sequence[CellSpec], *, measure: CellScore, reference: Reference | None
) -> list[ScoreDefinition]:
    """The mean over kinds, retention, the mCE family, FAN's accuracy, then the score and CE of every kind."""
    benchmark = MeasuredCells(tuple(cells), measure, reference)
    first, *others = benchmarks_of(CLASSIFICATION)
    return [
        *benchmark_scores(first, benchmark),
        *at_fewer_severities(first, benchmark),
        *_relative_to_reference(benchmark),
        *(score for row in others for score in benchmark_scores(row, benchmark)),
        *(score for row in (first, *others) for score in group_scores(row, benchmark)),
        *_by_kind(benchmark),
    ]


def condition_scores(cells: Sequence[CellSpec], measure: CellScore) -> list[ScoreDefinition]:
    """The score of every natural condition, and their mean."""
    found = [cell for cell in cells if cell.family == "condition"]
    if not found:
        return []
    names, text = [cell.name for cell in found], f"mean {measure.label} over {len(found)} natural conditions"
    scores = [mean_score(measure, names, f"mean_condition_{measure.name}", "conditions", text)]
    for cell in found:
        name, text = f"condition/{cell.kind}", f"{measure.label} in the condition {cell.kind}"
        about = {"family": cell.family, "table": "condition", "kind": cell.kind, "answers": measure.column(cell.name)}
        scores.append(mean_score(measure, [cell.name], name, cell.kind, text, **about))
    return scores


def single_scores(cells: Sequence[CellSpec], measure: CellScore) -> list[ScoreDefinition]:
    """The score of every other test set and of every attack."""
    return [_single(cell, measure) for cell in cells if cell.family in ("set", "attack")]


def _single(cell: CellSpec, measure: CellScore) -> ScoreDefinition:
    name, label, text = f"attack/{cell.kind}", cell.kind, f"{measure.label} under {SUITES.get(cell.kind, cell.kind)}"
    if cell.family == "set":
        name, label = cell.kind.replace("-", "_"), SETS.get(cell.kind, cell.kind)
        text = f"{measure.label} on {label}{CLASSES.get(cell.kind, '')}"
    about = {"family": cell.family, "kind": cell.kind, "answers": measure.column(cell.name)}
    return mean_score(measure, [cell.name], name, label, text, **about)


@dataclass(frozen=True)
class MeasuredCells:
    """The measured corruption cells, the score of a cell, and the baseline."""

    cells: tuple[CellSpec, ...]
    measure: CellScore
    reference: Reference | None

    @property
    def clean(self) -> str:
        """Name of the clean cell; empty if there is none."""
        return next((cell.name for cell in self.cells if cell.family == "clean"), "")

    def severities(self, kind: str) -> dict[int, str]:
        """Names of the cells of one kind by severity."""
        return {cell.severity: cell.name for cell in self.cells if cell.family == "corruption" and cell.kind == kind}

    def kinds(self) -> list[str]:
        """All measured kinds: built-in ones in canonical order, then custom ones."""
        there = dict.fromkeys(cell.kind for cell in self.cells if cell.family == "corruption")
        return [*(kind for kind in PUBLISHED if kind in there), *(kind for kind in there if kind not in PUBLISHED)]

    def by_kind(self, row: Benchmark, kinds: Sequence[str]) -> dict[str, list[str]]:
        """Names of a benchmark's cells of some measured kinds."""
        return {kind: [self.severities(kind)[severity] for severity in row.cells[kind]] for kind in kinds}

    @property
    def all_names(self) -> set[str]:
        """Names of all measured corruption cells."""
        return {cell.name for cell in self.cells if cell.family == "corruption"}

    def has(self, kind: str, severities: Sequence[int]) -> bool:
        """Whether these severities of a kind were measured."""
        return set(severities) <= set(self.severities(kind))

    def complete(self, kind: str) -> bool:
        """Whether all five severities of a kind were measured."""
        return self.has(kind, SEVERITIES)

    def errors(self, means: Means, kinds: Sequence[str]) -> Errors:
        """Errors, 1 − score, five per kind."""
        return {kind: [1 - self.measure.of(means, self.severities(kind)[s]) for s in SEVERITIES] for kind in kinds}

    def clean_value(self, means: Means) -> Values:
        """The score of the clean cell, if there is one."""
        return self.measure.of(means, self.clean)

    def over(
        self,
        wanted: Sequence[str],
        build: "Callable[[MeasuredCells, Sequence[str]], ScoreDefinition]",
        *,
        known: Collection[str] | None = None,
    ) -> list[ScoreDefinition]:
        """The score over the wanted kinds, or, marked as partial, over the complete ones."""
        usable = wanted if known is None else known
        complete = [kind for kind in wanted if kind in usable and self.complete(kind)]
        if not complete:
            return []
        lacking = [kind for kind in wanted if kind not in complete]
        missing = tuple(
            corruption_cell(kind, severity).name
            for kind in lacking
            for severity in SEVERITIES
            if severity not in self.severities(kind) or self.complete(kind)
        )  # a kind that is complete here is missing in the baseline
        formula = build(self, complete)
        formula = formula if formula.cells else replace(formula, cells=self.names(complete))
        return [partial_if(formula, missing=missing, count=len(complete), wanted=len(wanted))]

    def names(self, kinds: Sequence[str]) -> tuple[str, ...]:
        """Names of all cells of some kinds."""
        return tuple(name for kind in kinds for name in self.severities(kind).values())

    def reads(self, kinds: Sequence[str], *, clean: bool = False) -> tuple[Key, ...]:
        """What is read of all cells of some kinds, and of the clean cell."""
        return self.measure.reads(*((self.clean,) if clean else ()), *self.names(kinds))


def partial_if(formula: ScoreDefinition, *, missing: tuple[str, ...], count: int, wanted: int) -> ScoreDefinition:
    """Return the definition; if kinds are missing, with a name and label that mark it as partial."""
    if count == wanted:
        return formula
    label = f"{formula.label} (partial: {count} of {wanted} kinds)"
    return replace(formula, name=f"{formula.name}_partial", label=label, missing=missing)


def benchmark_scores(row: Benchmark, measured: MeasuredCells, **words: str) -> list[ScoreDefinition]:
    """Mean and retention of a published benchmark; marked as partial, over its complete kinds.

    ``words`` fill in the names and labels of the row, beside the score of a cell ``m`` and the number of ``kinds``.
    """
    kinds = [kind for kind in row.kinds if measured.has(kind, row.cells[kind])]
    if not kinds or row.mean is None or (len(kinds) < len(row.cells) and not _may_be_partial(row, measured)):
        return []
    measure, clean = measured.measure, measured.clean
    cells = measured.by_kind(row, kinds)
    names = tuple(name for each in cells.values() for name in each)
    mean = _mean_over(measure, cells, rounded=row.rounded and len(kinds) == len(row.cells))

    def kept(means: Means) -> Values:
        return retention(np.asarray(mean(means)) / 100, measured.clean_value(means))

    def score(text: ScoreText, compute: Compute, cells: tuple[str, ...], **about: Any) -> ScoreDefinition:
        known: dict[str, Any] = {"m": measure, "kinds": len(row.cells), **words}
        told = [part.format(**known) for part in (text.name, text.label, text.definition)]
        about |= {"note": text.note, "cells": cells, "reads": measure.reads(*cells)}
        return ScoreDefinition(told[0], told[1], "%", "high", told[2], compute, **about)

    scores = [score(row.mean, mean, names, family="corruption", headline=row.headline)]
    if row.kept is not None and clean:
        scores.append(score(row.kept, kept, (clean, *names), scale="ratio"))
    lacking = [corruption_cell(kind, each).name for kind in row.kinds if kind not in kinds for each in row.cells[kind]]
    missing = tuple(name for name in lacking if name not in measured.all_names)
    return [partial_if(each, missing=missing, count=len(kinds), wanted=len(row.cells)) for each in scores]


def group_scores(row: Benchmark, measured: MeasuredCells, **words: str) -> list[ScoreDefinition]:
    """Mean of every group of kinds of a published benchmark, if all its cells were measured."""
    if row.grouped is None or not all(measured.has(kind, severities) for kind, severities in row.cells.items()):
        return []
    text, measure, scores = row.grouped, measured.measure, []
    for group, kinds in row.groups.items():
        cells = measured.by_kind(row, kinds)
        known: dict[str, Any] = {"m": measure, "group": group, "members": ", ".join(kinds), **words}
        name, label, definition = (part.format(**known) for part in (text.name, text.label, text.definition))
        reads = measure.reads(*(each for names in cells.values() for each in names))
        about: dict[str, Any] = {"note": text.note, "table": name.partition("/")[0], "kind": group, "reads": reads}
        compute = _mean_over(measure, cells, rounded=row.rounded)
        scores.append(ScoreDefinition(name, label, "%", "high", definition, compute, **about))
    return scores


def _mean_over(measure: CellScore, cells: Mapping[str, Sequence[str]], *, rounded: bool) -> Compute:
    """The mean over severities, then over kinds, in percent; ``cells`` are the names of each kind's cells."""

    def compute(means: Means) -> Values:
        percent = {name: 100 * np.asarray(measure.of(means, name)) for names in cells.values() for name in names}
        used = {name: np.round(value, 2) if rounded else value for name, value in percent.items()}
        return mean_of([mean_of([used[name] for name in names]) for names in cells.values()])

    return compute


def _may_be_partial(row: Benchmark, measured: MeasuredCells) -> bool:
    """Whether a score over some of a row's kinds is given; not if the measured kinds are those of a rival."""
    there = set(measured.kinds())
    others = {kind for name in row.rivals for kind in BENCHMARKS[name].kinds}
    return row.partial and (
        not row.rivals or (not (others - set(row.kinds)) & there and bool((set(row.kinds) - others) & there))
    )


def at_fewer_severities(row: Benchmark, measured: MeasuredCells, **words: str) -> list[ScoreDefinition]:
    """Partial mean and retention if all kinds of a benchmark were measured at the same subset of its severities."""
    there = [sorted(measured.severities(kind)) for kind in row.cells]
    if not there[0] or len(there[0]) == len(SEVERITIES) or any(found != there[0] for found in there):
        return []
    some = tuple(there[0])
    cells = dict.fromkeys(row.cells, some)
    if row.mean is None or any(dict(other.cells) == cells and other.mean for other in benchmarks_of(row.task)):
        return []
    text = row.mean.definition.replace("5 severities", f"{len(some)} severit{'y' if len(some) == 1 else 'ies'}")
    suffix = severities_label(some)
    mean = replace(row.mean, name=f"{row.mean.name}_partial", label=f"{row.mean.label}{suffix}", definition=text)
    kept = row.kept and replace(
        row.kept,
        name=f"{row.kept.name}_partial",
        label=f"{row.kept.label}{suffix}",
        definition=f"{text} by {row.kept.definition.rpartition(' by ')[2]}",
    )
    missing = tuple(corruption_cell(kind, s).name for kind in row.cells for s in SEVERITIES if s not in some)
    scores = benchmark_scores(replace(row, cells=cells, mean=mean, kept=kept), measured, **words)
    return [replace(score, missing=missing) for score in scores]


def severities_label(severities: Sequence[int]) -> str:
    """Suffix of the label of a score over some severities only."""
    return f" (partial: severity {', '.join(map(str, severities))})"


def _relative_to_reference(benchmark: MeasuredCells) -> list[ScoreDefinition]:
    reference = benchmark.reference
    if reference is None or not reference.errors:
        return []
    rows = [row for row in BENCHMARKS.values() if row.reference]
    known = [kind for kind, error in reference.errors.items() if error > 0]
    scores = [
        score
        for row in rows
        if row.divided
        for score in benchmark.over(row.kinds, partial(_divided, row.divided), known=known)
    ]
    if benchmark.clean and reference.clean_error is not None:
        hurt = [kind for kind in known if reference.errors[kind] > reference.clean_error]
        for row in rows:
            scores += benchmark.over(row.kinds, partial(_added, row.added), known=hurt) if row.added else []
    return scores


def _divided(told: ScoreText, benchmark: MeasuredCells, kinds: Sequence[str]) -> ScoreDefinition:
    """The mean over kinds of the error by the reference's: mCE."""

    def compute(means: Means) -> Values:
        return mean_corruption_error(_ces(benchmark, means, kinds), kinds=kinds)

    return _by_reference(told, benchmark, compute, reads=benchmark.reads(kinds))


def _added(told: ScoreText, benchmark: MeasuredCells, kinds: Sequence[str]) -> ScoreDefinition:
    """The mean over kinds of what corruption adds to the clean error, by what it adds to the reference's."""
    reference = _reference(benchmark)

    def compute(means: Means) -> Values:
        ces = relative_corruption_errors(
            benchmark.errors(means, kinds),
            clean_error=1 - benchmark.clean_value(means),
            kinds=kinds,
            baseline=reference.errors,
            baseline_clean_error=reference.clean_error,
        )
        return mean_corruption_error(ces, kinds=kinds)

    return _by_reference(told, benchmark, compute, scale="plain", reads=benchmark.reads(kinds, clean=True))


def _by_reference(told: ScoreText, benchmark: MeasuredCells, compute: Compute, **about: Any) -> ScoreDefinition:
    name = _reference(benchmark).name
    text = told.definition.format(reference=name)
    return ScoreDefinition(told.name, told.label, f"% of {name}", "low", text, compute, **about)


def _ces(benchmark: MeasuredCells, means: Means, kinds: Sequence[str]) -> Mapping[str, Values]:
    return corruption_errors(benchmark.errors(means, kinds), kinds=kinds, baseline=_reference(benchmark).errors)


def _reference(benchmark: MeasuredCells) -> Reference:
    assert benchmark.reference is not None
    return benchmark.reference


def _by_kind(benchmark: MeasuredCells) -> list[ScoreDefinition]:
    reference = benchmark.reference
    divisors = reference.errors if reference is not None else {}
    kinds = benchmark.kinds()
    divided = [kind for kind in kinds if benchmark.complete(kind) and divisors.get(kind, 0) > 0]
    return [kind_score(benchmark, kind) for kind in kinds] + [_ce(benchmark, kind) for kind in divided]


def kind_score(benchmark: MeasuredCells, kind: str) -> ScoreDefinition:
    """The mean score over the severities of a kind; partial if some are missing."""
    measure, there = benchmark.measure, benchmark.severities(kind)
    text = f"{measure.label} under {kind}, mean over the severities"
    about = {"family": "corruption", "table": measure.name, "kind": kind}
    names = [there[severity] for severity in sorted(there)]
    formula = mean_score(measure, names, f"{measure.name}/{kind}", kind, text, **about)
    if benchmark.complete(kind):
        return formula
    missing = tuple(corruption_cell(kind, severity).name for severity in SEVERITIES if severity not in there)
    label = f"{kind}{severities_label(sorted(there))}"
    return replace(formula, name=f"{formula.name}_partial", label=label, missing=missing)


def _ce(benchmark: MeasuredCells, kind: str) -> ScoreDefinition:
    name = _reference(benchmark).name
    return ScoreDefinition(
        f"ce/{kind}",
        f"CE {kind}",
        f"% of {name}",
        "low",
        f"summed error under {kind} by that of {name}",
        lambda means: _ces(benchmark, means, [kind])[kind],
        family="corruption",
        table="ce",
        kind=kind,
        cells=benchmark.names([kind]),
        reads=benchmark.reads([kind]),
    )
