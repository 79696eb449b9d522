"""Score definitions of perturbation sequences: mFP, mFR, T5D, mT5D, and the scores of every kind."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from holdfast.cells import CellSpec, in_order, sequence_cell
from holdfast.corruptions.sequences import TEST_SEQUENCES
from holdfast.metrics.corruption import Values
from holdfast.metrics.flip_rate import mean_flip_rate, mean_over_kinds
from holdfast.metrics.scoring.base import Compute, Key, Means, Reference, ScoreDefinition, column, partial_if

FLIPS, DISTANCES = "flips", "distances"


def sequence_formulas(
    cells: Sequence[CellSpec], *, columns: Collection[Key], reference: Reference | None
) -> list[ScoreDefinition]:
    """Flip probabilities first, then top-5 distances, which models of fewer than five classes lack."""
    there = in_order([cell for cell in cells if cell.family == "sequence"])
    kinds = {cell.kind: cell.name for cell in there if column(cell.name, FLIPS) in columns}
    moving = {cell.kind: cell.name for cell in there if column(cell.name, DISTANCES) in columns}
    return [*_flip_scores(kinds, reference), *_distance_scores(moving, reference)]


def _flip_scores(cells: dict[str, str], reference: Reference | None) -> list[ScoreDefinition]:
    scores = _over_kinds(list(cells), lambda kinds: _mfp(cells, kinds))
    if reference is not None and reference.flips:
        known = [kind for kind in cells if reference.flips.get(kind, 0) > 0]
        scores += _over_kinds(known, lambda kinds: _mfr(cells, kinds, reference))
    return scores + [_flip_probability(kind, cell) for kind, cell in cells.items()]


def _distance_scores(cells: dict[str, str], reference: Reference | None) -> list[ScoreDefinition]:
    scores = _over_kinds(list(cells), lambda kinds: _mean_t5d(cells, kinds))
    if reference is not None and reference.distances:
        known = [kind for kind in cells if reference.distances.get(kind, 0) > 0]
        scores += _over_kinds(known, lambda kinds: _mt5d(cells, kinds, reference))
    return scores + [_top5_distance(kind, cell) for kind, cell in cells.items()]


def _over_kinds(there: Sequence[str], build: Callable[[Sequence[str]], ScoreDefinition]) -> list[ScoreDefinition]:
    complete = [kind for kind in TEST_SEQUENCES if kind in there]
    if not complete:
        return []
    missing = tuple(sequence_cell(kind).name for kind in TEST_SEQUENCES if kind not in complete)
    return [partial_if(build(complete), missing=missing, count=len(complete), wanted=len(TEST_SEQUENCES))]


def _mfp(cells: dict[str, str], kinds: Sequence[str]) -> ScoreDefinition:
    text = "mean flip probability over the ten test sequences, snow among them"
    compute: Compute = lambda m: 100 * mean_over_kinds(_of(m, cells, kinds, FLIPS), kinds=kinds)  # noqa: E731
    return ScoreDefinition("mfp", "mFP", "%", "low", text, compute, reads=_reads(cells, kinds, FLIPS))


def _mfr(cells: dict[str, str], kinds: Sequence[str], reference: Reference) -> ScoreDefinition:
    text = f"mean over the ten test sequences of the flip probability by that of {reference.name}"
    compute: Compute = lambda m: mean_flip_rate(  # noqa: E731
        _of(m, cells, kinds, FLIPS), baseline=reference.flips, kinds=kinds
    )
    about: dict[str, Any] = {"note": reference.flips_note, "reads": _reads(cells, kinds, FLIPS)}
    return ScoreDefinition("mfr", "mFR", f"% of {reference.name}", "low", text, compute, **about)


def _mean_t5d(cells: dict[str, str], kinds: Sequence[str]) -> ScoreDefinition:
    text = "mean top-5 distance over the ten test sequences"
    compute: Compute = lambda m: mean_over_kinds(_of(m, cells, kinds, DISTANCES), kinds=kinds)  # noqa: E731
    return ScoreDefinition("t5d", "T5D", "ranks", "low", text, compute, reads=_reads(cells, kinds, DISTANCES))


def _mt5d(cells: dict[str, str], kinds: Sequence[str], reference: Reference) -> ScoreDefinition:
    text = f"mean over the ten test sequences of the top-5 distance by that of {reference.name}"
    compute: Compute = lambda m: mean_flip_rate(  # noqa: E731
        _of(m, cells, kinds, DISTANCES), baseline=reference.distances, kinds=kinds
    )
    reads = _reads(cells, kinds, DISTANCES)
    return ScoreDefinition("mt5d", "mT5D", f"% of {reference.name}", "low", text, compute, reads=reads)


def _flip_probability(kind: str, cell: str) -> ScoreDefinition:
    text = f"share of compared frames of {kind} at which the predicted class changes"
    compute: Compute = lambda means: 100 * means[column(cell, FLIPS)]  # noqa: E731
    return ScoreDefinition(
        f"fp/{kind}", f"FP {kind}", "%", "low", text, compute, **_about(kind, cell, FLIPS, table="fp")
    )


def _top5_distance(kind: str, cell: str) -> ScoreDefinition:
    text = f"mean top-5 distance of the compared frames of {kind}"
    compute: Compute = lambda means: means[column(cell, DISTANCES)]  # noqa: E731
    return ScoreDefinition(
        f"t5d/{kind}", f"T5D {kind}", "ranks", "low", text, compute, **_about(kind, cell, DISTANCES, table="t5d")
    )


def _about(kind: str, cell: str, quantity: str, *, table: str) -> dict[str, Any]:
    return {"family": "sequence", "table": table, "kind": kind, "cells": (cell,), "reads": (column(cell, quantity),)}


def _reads(cells: dict[str, str], kinds: Sequence[str], quantity: str) -> tuple[Key, ...]:
    return tuple(column(cells[kind], quantity) for kind in kinds)


def _of(means: Means, cells: dict[str, str], kinds: Sequence[str], quantity: str) -> dict[str, Values]:
    return {kind: means[column(cells[kind], quantity)] for kind in kinds}
