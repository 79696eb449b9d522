"""The scores as formulas: what each is called, what it needs, and how it comes from means over images.

A formula takes the mean over the images of every column, such as ``fog/3|right``, and works alike on numbers and on
arrays of resampled means; so a score and its bootstrap interval are one computation. The same arithmetic, one score at
a time and from plain errors, is in :mod:`holdfast.metrics.corruption` and ``sequence_metrics``.

A score whose cells are not all there is never given under its name: it is called ``…_partial`` and names what it lacks.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.corruptions.catalog import ALL, SEVERITIES, STANDARD
from holdfast.corruptions.sequences import SEQUENCES, TEST_SEQUENCES
from holdfast.metrics.corruption import FAN_KINDS, FAN_LABEL, WITHOUT_NOISE

Values = NDArray[np.float64]  # (), or (resamples,)
Means = Mapping[str, Values]

BINS = 15  # of the calibration error
OTHER_SETS = {"imagenet-a": "ImageNet-A", "imagenet-r": "ImageNet-R", "imagenet-sketch": "ImageNet-Sketch"}


@dataclass(frozen=True)
class Formula:
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
    """

    name: str
    label: str
    unit: str
    better: str
    definition: str
    compute: Callable[[Means], Values]
    note: str = ""
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reference:
    """The model whose errors others are divided by: AlexNet where it applies, or a record set of the same protocol."""

    name: str
    errors: Mapping[str, float] = field(default_factory=dict)
    clean_error: float | None = None
    flips: Mapping[str, float] = field(default_factory=dict)
    distances: Mapping[str, float] = field(default_factory=dict)
    flips_note: str = ""


def all_formulas(columns: Collection[str], *, classes: int | None, reference: Reference | None) -> list[Formula]:
    """Every score that these columns (``fog/3|right`` …) allow, in the order in which tables show them."""
    cells = tuple(dict.fromkeys(column.rpartition("|")[0] for column in columns))
    return [
        *clean_scores(cells, classes=classes),
        *corruption_scores(cells, reference=reference),
        *flip_scores([kind for kind in SEQUENCES if _flips(kind) in columns], reference=reference),
        *distance_scores([kind for kind in SEQUENCES if _moves(kind) in columns], reference=reference),
        *other_scores(cells),
    ]


def cells_of(kind: str) -> tuple[str, ...]:
    """The five cells of a corruption."""
    return tuple(f"{kind}/{severity}" for severity in SEVERITIES)


def is_corruption(cell: str) -> bool:
    """Whether a cell is a corruption at a severity."""
    return cell.partition("/")[0] in ALL


def clean_scores(cells: Collection[str], *, classes: int | None) -> list[Formula]:
    """Top-1, top-5, NLL and calibration error of the clean images."""
    if "clean" not in cells:
        return []
    scores = [
        Formula("clean", "clean", "%", "high", "top-1 accuracy on the clean images", _percent("clean|right")),
        Formula("top5", "top-5", "%", "high", "target among the five best classes", _percent("clean|top5")),
        Formula("nll", "NLL", "nats", "low", "mean −log p(target), clean images", lambda m: m["clean|nll"]),
        Formula("ece", "ECE", "%", "low", f"calibration error in {BINS} bins, clean images", _calibration_error),
    ]
    # among five classes or fewer everything is in the top five
    return [score for score in scores if score.name != "top5" or classes is None or classes > 5]


def corruption_scores(cells: Collection[str], *, reference: Reference | None) -> list[Formula]:
    """Mean accuracy, retention, FAN's accuracy, the mCE family, then accuracy and CE of every kind."""
    there = {cell for cell in cells if is_corruption(cell)}
    clean = "clean" in cells
    scores = [
        *_over_kinds(_mean_accuracy, STANDARD, there),
        *(_over_kinds(_retention, STANDARD, there) if clean else []),
    ]
    if reference is not None and reference.errors:
        known = [kind for kind in STANDARD if reference.errors.get(kind, 0) > 0]
        scores += _over_kinds(lambda kinds: _mce(kinds, reference), STANDARD, there, known=known)
        scores += _over_kinds(lambda kinds: _without_noise(kinds, reference), WITHOUT_NOISE, there, known=known)
        if clean and reference.clean_error is not None:
            hurt = [kind for kind in known if reference.errors[kind] > reference.clean_error]
            scores += _over_kinds(lambda kinds: _relative(kinds, reference), STANDARD, there, known=hurt)
    if set(FAN_KINDS) <= {kind for kind in ALL if set(cells_of(kind)) <= there}:
        scores += [_fan(), *([_fan_retention()] if clean else [])]
    return scores + _by_kind(there, reference)


def flip_scores(there: Sequence[str], *, reference: Reference | None) -> list[Formula]:
    """MFP, mFR, then the flip probability of every sequence."""
    scores = _over_sequences(_mfp, there)
    if reference is not None and reference.flips:
        known = [kind for kind in there if reference.flips.get(kind, 0) > 0]
        scores += _over_sequences(lambda kinds: _mfr(kinds, reference), known)
    return scores + [_flip_probability(kind) for kind in there]


def distance_scores(there: Sequence[str], *, reference: Reference | None) -> list[Formula]:
    """T5D, mT5D, then the top-5 distance of every sequence."""
    scores = _over_sequences(_mean_t5d, there)
    if reference is not None and reference.distances:
        known = [kind for kind in there if reference.distances.get(kind, 0) > 0]
        scores += _over_sequences(lambda kinds: _mt5d(kinds, reference), known)
    return scores + [_top5_distance(kind) for kind in there]


def other_scores(cells: Collection[str]) -> list[Formula]:
    """ImageNet-A, -R and -Sketch, and the attacks: the accuracy of each cell that is none of the above."""
    known = [cell for cell in cells if cell == "clean" or is_corruption(cell) or cell.startswith("sequence/")]
    return [_single(cell) for cell in cells if cell not in known]


def _single(cell: str) -> Formula:
    if cell in OTHER_SETS:
        among = "" if cell == "imagenet-sketch" else " among its 200 classes"
        text = f"top-1 accuracy on {OTHER_SETS[cell]}{among}"
        return Formula(cell.replace("-", "_"), OTHER_SETS[cell], "%", "high", text, _percent(f"{cell}|right"))
    return Formula(f"attack/{cell}", cell, "%", "high", f"top-1 accuracy under {cell}", _percent(f"{cell}|right"))


def _over_kinds(
    build: Callable[[Sequence[str]], Formula],
    wanted: Sequence[str],
    there: Collection[str],
    *,
    known: Sequence[str] | None = None,
) -> list[Formula]:
    """The score over the kinds, or the one over those that are complete, called partial."""
    usable = wanted if known is None else known
    complete = [kind for kind in wanted if kind in usable and set(cells_of(kind)) <= set(there)]
    if not complete:
        return []
    lacking = [kind for kind in wanted if kind not in complete]
    missing = tuple(
        cell for kind in lacking for cell in cells_of(kind) if cell not in there or set(cells_of(kind)) <= set(there)
    )  # a kind that is complete here is one that the reference lacks
    return [_maybe_partial(build(complete), missing=missing, count=len(complete), wanted=len(wanted))]


def _over_sequences(build: Callable[[Sequence[str]], Formula], there: Sequence[str]) -> list[Formula]:
    complete = [kind for kind in TEST_SEQUENCES if kind in there]
    if not complete:
        return []
    missing = tuple(f"sequence/{kind}" for kind in TEST_SEQUENCES if kind not in complete)
    return [_maybe_partial(build(complete), missing=missing, count=len(complete), wanted=len(TEST_SEQUENCES))]


def _maybe_partial(formula: Formula, *, missing: tuple[str, ...], count: int, wanted: int) -> Formula:
    if count == wanted:
        return formula
    label = f"{formula.label} (partial: {count} of {wanted} kinds)"
    return replace(formula, name=f"{formula.name}_partial", label=label, missing=missing)


def _by_kind(there: Collection[str], reference: Reference | None) -> list[Formula]:
    scores = []
    for kind in ALL:
        cells = [cell for cell in cells_of(kind) if cell in there]
        if not cells:
            continue
        text = f"top-1 accuracy under {kind}, mean over the severities"
        formula = Formula(f"accuracy/{kind}", kind, "%", "high", text, _mean_percent(cells))
        if len(cells) < len(SEVERITIES):
            severities = ", ".join(cell.split("/")[1] for cell in cells)
            missing = tuple(cell for cell in cells_of(kind) if cell not in cells)
            label = f"{kind} (partial: severity {severities})"
            formula = replace(formula, name=f"{formula.name}_partial", label=label, missing=missing)
        scores.append(formula)
    complete = [kind for kind in ALL if set(cells_of(kind)) <= set(there)]
    divisors = reference.errors if reference is not None else {}
    return scores + [_ce(kind, reference) for kind in complete if reference and divisors.get(kind, 0) > 0]


def _mean_accuracy(kinds: Sequence[str]) -> Formula:
    text = "mean top-1 accuracy over 15 kinds × 5 severities"
    return Formula("mean_corruption_accuracy", "mCA", "%", "high", text, lambda m: 100 * (1 - _mean_error(m, kinds)))


def _retention(kinds: Sequence[str]) -> Formula:
    text = "mean corruption accuracy over 15 kinds by clean accuracy"
    return Formula("retention", "retention", "%", "high", text, _kept(kinds))


def _fan() -> Formula:
    text = "mean accuracy over the 16 kinds of FAN's Table 12"
    compute = lambda m: 100 * (1 - _mean_error(m, FAN_KINDS))  # noqa: E731
    return Formula("fan_accuracy", "FAN accuracy", "%", "high", text, compute, note=FAN_LABEL)


def _fan_retention() -> Formula:
    text = "FAN's 16-kind accuracy by clean accuracy"
    return Formula("fan_retention", "FAN retention", "%", "high", text, _kept(FAN_KINDS), note=FAN_LABEL)


def _ce(kind: str, reference: Reference) -> Formula:
    text = f"summed error under {kind} by that of {reference.name}"
    compute = lambda m: 100 * _error(m, kind) / reference.errors[kind]  # noqa: E731
    return Formula(f"ce/{kind}", f"CE {kind}", f"% of {reference.name}", "low", text, compute)


def _mce(kinds: Sequence[str], reference: Reference) -> Formula:
    text = f"mean over the 15 kinds of the error by that of {reference.name}"
    return Formula("mce", "mCE", f"% of {reference.name}", "low", text, _mean_ce(kinds, reference))


def _without_noise(kinds: Sequence[str], reference: Reference) -> Formula:
    text = "mCE over the 12 kinds that are not noise"
    compute = _mean_ce(kinds, reference)
    return Formula("mce_without_noise", "mCE w/o noise", f"% of {reference.name}", "low", text, compute)


def _relative(kinds: Sequence[str], reference: Reference) -> Formula:
    text = f"mean over the 15 kinds of what corruption adds to the clean error, by what it adds to {reference.name}'s"

    def compute(means: Means) -> Values:
        own = 1 - means["clean|right"]
        added = [reference.errors[kind] - (reference.clean_error or 0) for kind in kinds]
        return 100 * _mean([(_error(means, kind) - own) / by for kind, by in zip(kinds, added, strict=True)])

    return Formula("relative_mce", "relative mCE", f"% of {reference.name}", "low", text, compute)


def _mfp(kinds: Sequence[str]) -> Formula:
    text = "mean flip probability over the ten test sequences, snow among them"
    return Formula("mfp", "mFP", "%", "low", text, lambda m: 100 * _mean([m[_flips(kind)] for kind in kinds]))


def _mfr(kinds: Sequence[str], reference: Reference) -> Formula:
    text = f"mean over the ten test sequences of the flip probability by that of {reference.name}"
    compute = lambda m: 100 * _mean([m[_flips(kind)] / reference.flips[kind] for kind in kinds])  # noqa: E731
    return Formula("mfr", "mFR", f"% of {reference.name}", "low", text, compute, note=reference.flips_note)


def _mean_t5d(kinds: Sequence[str]) -> Formula:
    text = "mean top-5 distance over the ten test sequences"
    return Formula("t5d", "T5D", "ranks", "low", text, lambda m: _mean([m[_moves(kind)] for kind in kinds]))


def _mt5d(kinds: Sequence[str], reference: Reference) -> Formula:
    text = f"mean over the ten test sequences of the top-5 distance by that of {reference.name}"
    compute = lambda m: 100 * _mean([m[_moves(kind)] / reference.distances[kind] for kind in kinds])  # noqa: E731
    return Formula("mt5d", "mT5D", f"% of {reference.name}", "low", text, compute)


def _flip_probability(kind: str) -> Formula:
    text = f"share of compared frames of {kind} at which the predicted class changes"
    return Formula(f"fp/{kind}", f"FP {kind}", "%", "low", text, _percent(_flips(kind)))


def _top5_distance(kind: str) -> Formula:
    text = f"mean top-5 distance of the compared frames of {kind}"
    return Formula(f"t5d/{kind}", f"T5D {kind}", "ranks", "low", text, lambda m: m[_moves(kind)])


def _flips(kind: str) -> str:
    return f"sequence/{kind}|flips"


def _moves(kind: str) -> str:
    return f"sequence/{kind}|distances"


def _percent(column: str) -> Callable[[Means], Values]:
    return lambda means: 100 * means[column]


def _mean_percent(cells: Sequence[str]) -> Callable[[Means], Values]:
    return lambda means: 100 * _mean([means[f"{cell}|right"] for cell in cells])


def _mean(values: Sequence[Any]) -> Values:
    return np.mean(np.stack([np.asarray(value) for value in values]), axis=0)


def _error(means: Means, kind: str) -> Values:
    return 1 - _mean([means[f"{cell}|right"] for cell in cells_of(kind)])


def _mean_error(means: Means, kinds: Sequence[str]) -> Values:
    return _mean([_error(means, kind) for kind in kinds])


def _mean_ce(kinds: Sequence[str], reference: Reference) -> Callable[[Means], Values]:
    return lambda means: 100 * _mean([_error(means, kind) / reference.errors[kind] for kind in kinds])


def _kept(kinds: Sequence[str]) -> Callable[[Means], Values]:
    def compute(means: Means) -> Values:
        clean = np.asarray(means["clean|right"])
        known = np.where(clean > 0, clean, np.nan)  # of a clean accuracy of 0 there is nothing to keep
        return 100 * (1 - _mean_error(means, kinds)) / known

    return compute


def _calibration_error(means: Means) -> Values:
    return 100 * np.sum(np.abs(np.stack([means[f"clean|gap{number}"] for number in range(BINS)])), axis=0)
