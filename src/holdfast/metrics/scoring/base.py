"""The scores as formulas: what each is called, what it needs, and how it comes from means over images.

A formula takes the mean over the images of every column (``column("fog/3", "right")``) and works alike on numbers and
on arrays of jackknife replicates; so a score and its interval are one computation, by the pure functions of
:mod:`holdfast.metrics.corruption` and :mod:`~holdfast.metrics.flip_rate`. What a cell is scored by is the task's
:class:`CellScore`; everything else here is the same for all tasks.

A score whose cells are not all there is never given under its name: it is called ``…_partial`` and names what it lacks.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from holdfast.corruptions.severities import PUBLISHED, SEVERITIES, STANDARD
from holdfast.metrics.corruption import (
    FAN_KINDS,
    FAN_LABEL,
    WITHOUT_NOISE,
    Errors,
    Values,
    corruption_errors,
    mean_corruption_accuracy,
    mean_corruption_error,
    mean_of,
    relative_corruption_errors,
    retention,
)
from holdfast.metrics.intervals import Scale
from holdfast.records.cells import CellSpec, corruption_cell

Means = Mapping[str, Values]
Compute = Callable[[Means], Values]

SETS = {"imagenet-a": "ImageNet-A", "imagenet-r": "ImageNet-R", "imagenet-sketch": "ImageNet-Sketch"}


@dataclass(frozen=True)
class ScoreDefinition:
    """One score: its name, how to read it, and its computation.

    Attributes:
        name: ``mce``, ``accuracy/fog``, ``attack/pgd5`` …, unique within a summary.
        label: what a table calls it.
        unit: ``%``, ``% of AlexNet``, ``nats``, ``ranks``.
        better: ``high`` or ``low``.
        definition: one sentence.
        compute: from the means over the images.
        note: what must be said beside the number.
        missing: the cells that a partial score lacks.
        family: of the cells it is about, where they are all of one: ``attack``, ``corruption`` …
        table: the table with a column per kind that it belongs to, such as ``accuracy``; empty for what stands alone.
        kind: which corruption, sequence, attack, set or condition it is about.
        cells: the cells that it is made of.
        headline: whether a report shows it first, beside what the task says.
        scale: which interval it gets: ``proportion`` from 0 to 100 %, ``ratio``, or ``plain``; by default a proportion
            in ``%``, a ratio in ``% of`` something, plain in any other unit.
        answers: the column whose plain mean it is, if it is one: where that is 0 or 1 for every image, the interval of
            a difference has Bonett and Price's pseudo-pairs.
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
    answers: str = ""

    @property
    def interval_scale(self) -> Scale:
        """The scale that was given, or the one that belongs to the unit."""
        if self.scale is not None:
            return self.scale
        return "proportion" if self.unit == "%" else "ratio" if self.unit.startswith("% of") else "plain"


@dataclass(frozen=True)
class CellScore:
    """What a task scores one cell by: a fraction from 0 to 1 that is better high.

    Attributes:
        name: as part of scores' names: ``accuracy`` gives ``accuracy/fog`` and ``mean_corruption_accuracy``.
        label: in sentences: ``top-1 accuracy``.
        mean_label: what tables call its mean over corruptions: ``mCA``.
        of: from the means over the images, of the cell of that name.
        answers: the quantity whose plain mean it is, if it is one.
    """

    name: str
    label: str
    mean_label: str
    of: Callable[[Means, str], Values]
    answers: str = ""

    def column(self, cell: str) -> str:
        """The key of that quantity in a cell; empty where there is none."""
        return column(cell, self.answers) if self.answers else ""


@dataclass(frozen=True)
class Reference:
    """The model whose errors others are divided by: AlexNet where it applies, or a record set of the same protocol."""

    name: str
    errors: Mapping[str, float] = field(default_factory=dict)
    clean_error: float | None = None
    flips: Mapping[str, float] = field(default_factory=dict)
    distances: Mapping[str, float] = field(default_factory=dict)
    flips_note: str = ""


def column(cell: str, quantity: str) -> str:
    """The key of what is averaged over the images: one quantity of one cell."""
    return f"{cell}|{quantity}"


def shared_formulas(
    cells: Sequence[CellSpec], *, measure: CellScore, reference: Reference | None = None
) -> list[ScoreDefinition]:
    """What every task has: the clean score, corruptions, conditions, other sets, attacks."""
    return [
        *clean_score(cells, measure),
        *corruption_scores(cells, measure=measure, reference=reference),
        *condition_scores(cells, measure),
        *single_scores(cells, measure),
    ]


def clean_score(cells: Sequence[CellSpec], measure: CellScore) -> list[ScoreDefinition]:
    """The measure of the clean images."""
    text = f"{measure.label} on the clean images"
    found = [cell.name for cell in cells if cell.family == "clean"][:1]
    return [
        ScoreDefinition(
            "clean", "clean", "%", "high", text, _percent(measure, name), cells=(name,), answers=measure.column(name)
        )
        for name in found
    ]


def corruption_scores(
    cells: Sequence[CellSpec], *, measure: CellScore, reference: Reference | None
) -> list[ScoreDefinition]:
    """The mean over kinds, retention, FAN's accuracy, the mCE family, then the measure and CE of every kind."""
    benchmark = Benchmark(tuple(cells), measure, reference)
    return [
        *benchmark.over(STANDARD, _mean_score),
        *(benchmark.over(STANDARD, _retention) if benchmark.clean else []),
        *_at_fewer_severities(benchmark),
        *_relative_to_reference(benchmark),
        *_fan_scores(benchmark),
        *_by_kind(benchmark),
    ]


def condition_scores(cells: Sequence[CellSpec], measure: CellScore) -> list[ScoreDefinition]:
    """The measure of every natural condition, and their plain mean."""
    names = [cell.name for cell in cells if cell.family == "condition"]
    each = [
        ScoreDefinition(
            f"condition/{cell.kind}",
            cell.kind,
            "%",
            "high",
            f"{measure.label} in the condition {cell.kind}",
            _percent(measure, cell.name),
            family=cell.family,
            table="condition",
            kind=cell.kind,
            cells=(cell.name,),
            answers=measure.column(cell.name),
        )
        for cell in cells
        if cell.family == "condition"
    ]
    if not names:
        return []
    text = f"mean {measure.label} over {len(names)} natural conditions"
    name = f"mean_condition_{measure.name}"
    compute: Compute = lambda means: 100 * mean_of([measure.of(means, cell) for cell in names])  # noqa: E731
    return [ScoreDefinition(name, "conditions", "%", "high", text, compute, cells=tuple(names)), *each]


def single_scores(cells: Sequence[CellSpec], measure: CellScore) -> list[ScoreDefinition]:
    """The measure of every other set and of every attack."""
    return [_single(cell, measure) for cell in cells if cell.family in ("set", "attack")]


def _single(cell: CellSpec, measure: CellScore) -> ScoreDefinition:
    compute = _percent(measure, cell.name)
    about: dict[str, Any] = {"family": cell.family, "kind": cell.kind, "cells": (cell.name,)}
    about["answers"] = measure.column(cell.name)
    if cell.family == "set":
        label = SETS.get(cell.kind, cell.kind)
        among = " among its 200 classes" if cell.kind in ("imagenet-a", "imagenet-r") else ""
        name, text = cell.kind.replace("-", "_"), f"{measure.label} on {label}{among}"
        return ScoreDefinition(name, label, "%", "high", text, compute, **about)
    text = f"{measure.label} under {cell.kind}"
    return ScoreDefinition(f"attack/{cell.kind}", cell.kind, "%", "high", text, compute, **about)


@dataclass(frozen=True)
class Benchmark:
    """The corruption cells that are there, and what they are scored by."""

    cells: tuple[CellSpec, ...]
    measure: CellScore
    reference: Reference | None

    @property
    def clean(self) -> str:
        """The clean cell's name, if there is one."""
        return next((cell.name for cell in self.cells if cell.family == "clean"), "")

    def severities(self, kind: str) -> dict[int, str]:
        """The names of the cells of one kind by severity."""
        return {cell.severity: cell.name for cell in self.cells if cell.family == "corruption" and cell.kind == kind}

    def kinds(self) -> list[str]:
        """All kinds that are there, the known ones in their order, others behind them."""
        there = dict.fromkeys(cell.kind for cell in self.cells if cell.family == "corruption")
        return [*(kind for kind in PUBLISHED if kind in there), *(kind for kind in there if kind not in PUBLISHED)]

    def complete(self, kind: str) -> bool:
        """Whether all five severities are there."""
        return set(SEVERITIES) <= set(self.severities(kind))

    def errors(self, means: Means, kinds: Sequence[str]) -> Errors:
        """One minus the measure, five per kind."""
        return {kind: [1 - self.measure.of(means, self.severities(kind)[s]) for s in SEVERITIES] for kind in kinds}

    def clean_value(self, means: Means) -> Values:
        """The measure of the clean images."""
        return self.measure.of(means, self.clean)

    def over(
        self,
        wanted: Sequence[str],
        build: "Callable[[Benchmark, Sequence[str]], ScoreDefinition]",
        *,
        known: Collection[str] | None = None,
    ) -> list[ScoreDefinition]:
        """The score over the kinds, or the one over those that are complete, called partial."""
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
        )  # a kind that is complete here is one that the reference lacks
        formula = build(self, complete)
        formula = formula if formula.cells else replace(formula, cells=self.names(complete))
        return [partial_if(formula, missing=missing, count=len(complete), wanted=len(wanted))]

    def names(self, kinds: Sequence[str]) -> tuple[str, ...]:
        """The names of all cells of some kinds."""
        return tuple(name for kind in kinds for name in self.severities(kind).values())


def partial_if(formula: ScoreDefinition, *, missing: tuple[str, ...], count: int, wanted: int) -> ScoreDefinition:
    """The formula itself, or, where kinds are missing, under a name and a label that say so."""
    if count == wanted:
        return formula
    label = f"{formula.label} (partial: {count} of {wanted} kinds)"
    return replace(formula, name=f"{formula.name}_partial", label=label, missing=missing)


def _mean_score(benchmark: Benchmark, kinds: Sequence[str]) -> ScoreDefinition:
    measure = benchmark.measure
    text = f"mean {measure.label} over 15 kinds × 5 severities"
    compute: Compute = lambda m: 100 * mean_corruption_accuracy(benchmark.errors(m, kinds), kinds=kinds)  # noqa: E731
    return ScoreDefinition(
        f"mean_corruption_{measure.name}", measure.mean_label, "%", "high", text, compute, family="corruption"
    )


def _retention(benchmark: Benchmark, kinds: Sequence[str]) -> ScoreDefinition:
    text = f"mean corruption {benchmark.measure.name} over 15 kinds by clean {benchmark.measure.name}"
    cells = (benchmark.clean, *benchmark.names(kinds))
    return ScoreDefinition(
        "retention", "retention", "%", "high", text, _retention_score(benchmark, kinds), cells=cells, scale="ratio"
    )


def _retention_score(benchmark: Benchmark, kinds: Sequence[str]) -> Compute:
    return lambda means: retention(
        mean_corruption_accuracy(benchmark.errors(means, kinds), kinds=kinds), benchmark.clean_value(means)
    )


def _at_fewer_severities(benchmark: Benchmark) -> list[ScoreDefinition]:
    """The mean and what is kept of the clean score where all 15 kinds lack the same severities, called partial."""
    there = [sorted(benchmark.severities(kind)) for kind in STANDARD]
    if not there[0] or any(
        benchmark.complete(kind) or found != there[0] for kind, found in zip(STANDARD, there, strict=True)
    ):
        return []
    measure, names, clean = benchmark.measure, benchmark.names(STANDARD), benchmark.clean

    def mean(means: Means) -> Values:
        return mean_of([measure.of(means, name) for name in names])

    missing = tuple(corruption_cell(kind, s).name for kind in STANDARD for s in SEVERITIES if s not in there[0])
    text = f"mean {measure.label} over 15 kinds × {len(there[0])} severities"
    told = severities_label(there[0])
    scores = [
        ScoreDefinition(
            f"mean_corruption_{measure.name}_partial",
            f"{measure.mean_label}{told}",
            "%",
            "high",
            text,
            lambda means: 100 * mean(means),
            missing=missing,
            family="corruption",
            cells=names,
        )
    ]
    if clean:
        kept = f"{text} by clean {measure.name}"
        share: Compute = lambda means: retention(mean(means), benchmark.clean_value(means))  # noqa: E731
        label, cells = f"retention{told}", (clean, *names)
        about: dict[str, Any] = {"missing": missing, "cells": cells, "scale": "ratio"}
        scores.append(ScoreDefinition("retention_partial", label, "%", "high", kept, share, **about))
    return scores


def severities_label(severities: Sequence[int]) -> str:
    """What stands behind the label of a score over some severities only."""
    return f" (partial: severity {', '.join(map(str, severities))})"


def _relative_to_reference(benchmark: Benchmark) -> list[ScoreDefinition]:
    reference = benchmark.reference
    if reference is None or not reference.errors:
        return []
    known = [kind for kind in STANDARD if reference.errors.get(kind, 0) > 0]
    scores = benchmark.over(STANDARD, _mce, known=known) + benchmark.over(WITHOUT_NOISE, _without_noise, known=known)
    if benchmark.clean and reference.clean_error is not None:
        hurt = [kind for kind in known if reference.errors[kind] > reference.clean_error]
        scores += benchmark.over(STANDARD, _relative, known=hurt)
    return scores


def _mce(benchmark: Benchmark, kinds: Sequence[str]) -> ScoreDefinition:
    name = _reference(benchmark).name
    text = f"mean over the 15 kinds of the error by that of {name}"
    return ScoreDefinition("mce", "mCE", f"% of {name}", "low", text, _mean_ce(benchmark, kinds))


def _without_noise(benchmark: Benchmark, kinds: Sequence[str]) -> ScoreDefinition:
    text = "mCE over the 12 kinds that are not noise"
    unit = f"% of {_reference(benchmark).name}"
    return ScoreDefinition("mce_without_noise", "mCE w/o noise", unit, "low", text, _mean_ce(benchmark, kinds))


def _relative(benchmark: Benchmark, kinds: Sequence[str]) -> ScoreDefinition:
    reference = _reference(benchmark)
    text = f"mean over the 15 kinds of what corruption adds to the clean error, by what it adds to {reference.name}'s"

    def compute(means: Means) -> Values:
        ces = relative_corruption_errors(
            benchmark.errors(means, kinds),
            clean_error=1 - benchmark.clean_value(means),
            kinds=kinds,
            baseline=reference.errors,
            baseline_clean_error=reference.clean_error,
        )
        return mean_corruption_error(ces, kinds=kinds)

    return ScoreDefinition(
        "relative_mce", "relative mCE", f"% of {reference.name}", "low", text, compute, scale="plain"
    )


def _mean_ce(benchmark: Benchmark, kinds: Sequence[str]) -> Compute:
    return lambda means: mean_corruption_error(_ces(benchmark, means, kinds), kinds=kinds)


def _ces(benchmark: Benchmark, means: Means, kinds: Sequence[str]) -> Mapping[str, Values]:
    return corruption_errors(benchmark.errors(means, kinds), kinds=kinds, baseline=_reference(benchmark).errors)


def _reference(benchmark: Benchmark) -> Reference:
    assert benchmark.reference is not None
    return benchmark.reference


def _fan_scores(benchmark: Benchmark) -> list[ScoreDefinition]:
    if not all(map(benchmark.complete, FAN_KINDS)):
        return []
    measure = benchmark.measure

    def compute(means: Means) -> Values:
        return 100 * mean_corruption_accuracy(benchmark.errors(means, FAN_KINDS), kinds=FAN_KINDS)

    mean = f"mean {measure.name} over the 16 kinds of FAN's Table 12"
    kept = f"FAN's 16-kind {measure.name} by clean {measure.name}"
    scores = [ScoreDefinition(f"fan_{measure.name}", f"FAN {measure.name}", "%", "high", mean, compute, note=FAN_LABEL)]
    if benchmark.clean:
        share = _retention_score(benchmark, FAN_KINDS)
        scores.append(
            ScoreDefinition("fan_retention", "FAN retention", "%", "high", kept, share, note=FAN_LABEL, scale="ratio")
        )
    return scores


def _by_kind(benchmark: Benchmark) -> list[ScoreDefinition]:
    reference = benchmark.reference
    divisors = reference.errors if reference is not None else {}
    kinds = benchmark.kinds()
    divided = [kind for kind in kinds if benchmark.complete(kind) and divisors.get(kind, 0) > 0]
    return [_of_kind(benchmark, kind) for kind in kinds] + [_ce(benchmark, kind) for kind in divided]


def _of_kind(benchmark: Benchmark, kind: str) -> ScoreDefinition:
    measure, there = benchmark.measure, benchmark.severities(kind)
    names = tuple(there[severity] for severity in sorted(there))
    formula = ScoreDefinition(
        f"{measure.name}/{kind}",
        kind,
        "%",
        "high",
        f"{measure.label} under {kind}, mean over the severities",
        lambda means: 100 * mean_of([measure.of(means, name) for name in names]),
        family="corruption",
        table=measure.name,
        kind=kind,
        cells=names,
    )
    if benchmark.complete(kind):
        return formula
    missing = tuple(corruption_cell(kind, severity).name for severity in SEVERITIES if severity not in there)
    label = f"{kind}{severities_label(sorted(there))}"
    return replace(formula, name=f"{formula.name}_partial", label=label, missing=missing)


def _ce(benchmark: Benchmark, kind: str) -> ScoreDefinition:
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
        cells=tuple(benchmark.severities(kind).values()),
    )


def _percent(measure: CellScore, cell: str) -> Compute:
    return lambda means: 100 * np.asarray(measure.of(means, cell))
