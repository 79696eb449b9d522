"""Score definitions of detection: AP on clean images, mPC and rPC over both published sets of kinds.

AP belongs to a whole set and is not a mean over images: definitions get the AP of every cell, and the AP without
each group of images (:mod:`holdfast.metrics.ap_jackknife`).
"""

from collections.abc import Collection, Sequence

from holdfast.benchmarks import benchmarks_of
from holdfast.metrics.average_precision import SCORES
from holdfast.metrics.scoring.base import (
    CellScore,
    Compute,
    Key,
    MeasuredCells,
    ScoreDefinition,
    benchmark_scores,
    column,
    kind_score,
)
from holdfast.records.cells import CellSpec

BOX, MASK = "box_", "mask_"  # prefixes of column names
OVER = {BOX: "boxes", MASK: "masks"}
SIZES = {"s": "small objects (below 32² px)", "m": "medium ones", "l": "large ones (from 96² px)"}


def detection_formulas(cells: Sequence[CellSpec], *, columns: Collection[Key]) -> list[ScoreDefinition]:
    """Every score that the cells allow, boxes first, then masks."""
    there = set(columns)
    kinds = [over for over in OVER if any(quantity == f"{over}AP" for _, quantity in there)]
    return [formula for over in kinds for formula in _of_overlap(cells, over, there)]


def cell_ap(over: str = BOX) -> CellScore:
    """AP of a cell's boxes or masks."""
    prefix, label, quantity = "" if over == BOX else over, f"{over.removesuffix('_')} AP", f"{over}AP"
    of = lambda means, cell: means[column(cell, quantity)]  # noqa: E731
    return CellScore(f"{prefix}ap", label, f"{prefix}mPC", of, quantities=(quantity,))


def _of_overlap(cells: Sequence[CellSpec], over: str, there: Collection[Key]) -> list[ScoreDefinition]:
    prefix = "" if over == BOX else over
    measure = cell_ap(over)
    benchmark = MeasuredCells(tuple(cells), measure, None)
    words = {"prefix": prefix, "what": over.removesuffix("_")}
    return [
        *_clean_scores(benchmark, over, prefix, there),
        *(score for row in benchmarks_of("detection") for score in benchmark_scores(row, benchmark, **words)),
        *(kind_score(benchmark, kind) for kind in benchmark.kinds()),
    ]


def _clean_scores(benchmark: MeasuredCells, over: str, prefix: str, there: Collection[Key]) -> list[ScoreDefinition]:
    clean = benchmark.clean
    if not clean:
        return []
    named = {"AP": f"{prefix}clean"} | {score: f"{prefix}{score.lower()}" for score in SCORES[1:]}
    named = {score: name for score, name in named.items() if column(clean, f"{over}{score}") in there}
    return [
        ScoreDefinition(
            name,
            f"{over.removesuffix('_')} {score}",
            "%",
            "high",
            _sentence(score, over),
            _percent(column(clean, f"{over}{score}")),
            cells=(clean,),
            reads=(column(clean, f"{over}{score}"),),
        )
        for score, name in named.items()
    ]


def _percent(key: Key) -> Compute:
    return lambda means: 100 * means[key]


def _sentence(score: str, over: str) -> str:
    kind, rest = score[:2], score[2:]
    what = "average precision" if kind == "AP" else "average recall"
    if rest in SIZES:
        return f"{what} of {OVER[over]} over IoU .50:.05:.95, {SIZES[rest]}, clean images"
    if kind == "AP":
        return f"{what} of {OVER[over]} at IoU {f'.{rest}' if rest else '.50:.05:.95'}, clean images"
    return f"{what} of {OVER[over]} over IoU .50:.05:.95 with {rest} detections per image, clean images"
