"""Score definitions of detection: AP on clean images, mPC and rPC over both published sets of kinds.

AP belongs to a whole set and is not a mean over images: definitions get the AP of every cell, and the AP without
each group of images (:mod:`holdfast.metrics.ap_jackknife`).
"""

from collections.abc import Collection, Sequence

import numpy as np

from holdfast.corruptions.severities import SEVERITIES
from holdfast.metrics.average_precision import COCO_C, COCO_C_FAN, SCORES
from holdfast.metrics.corruption import Values, mean_of, retention
from holdfast.metrics.scoring.base import Benchmark, CellScore, Compute, Key, Means, ScoreDefinition, column
from holdfast.records.cells import CellSpec

BOX, MASK = "box_", "mask_"  # prefixes of column names
OVER = {BOX: "boxes", MASK: "masks"}
FAN_NOTE = "16 kinds: flatters rPC by about 6 points against COCO-C's 15, never compare the two"
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
    benchmark = Benchmark(tuple(cells), measure, None)
    return [
        *_clean_scores(benchmark, over, prefix, there),
        *_means(benchmark, COCO_C, prefix=prefix, suffix="", others=COCO_C_FAN),
        *_means(benchmark, COCO_C_FAN, prefix=prefix, suffix="_fan", others=COCO_C),
        *(_kind(benchmark, kind, prefix) for kind in benchmark.kinds()),
    ]


def _clean_scores(benchmark: Benchmark, over: str, prefix: str, there: Collection[Key]) -> list[ScoreDefinition]:
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


def _means(
    benchmark: Benchmark, kinds: Sequence[str], *, prefix: str, suffix: str, others: Sequence[str]
) -> list[ScoreDefinition]:
    """mPC and rPC over these kinds; partial only if no measured kind belongs to the other published set alone."""
    foreign = set(others) - set(kinds)
    complete = all(map(benchmark.complete, kinds))
    if not complete and (foreign & set(benchmark.kinds()) or not set(kinds) - set(others) & set(benchmark.kinds())):
        return []
    note = FAN_NOTE if suffix else ""
    label, of_fan = benchmark.measure.label.removesuffix(" AP"), " (FAN)" if suffix else ""

    def mpc(cells: Benchmark, chosen: Sequence[str]) -> ScoreDefinition:
        text = f"mean {cells.measure.label} over {len(kinds)} kinds × 5 severities"
        return ScoreDefinition(
            f"{prefix}mpc{suffix}",
            f"{label} mPC{of_fan}",
            "%",
            "high",
            text,
            lambda means: 100 * np.asarray(_mean(cells, means, chosen)),
            note=note,
            family="corruption",
            reads=cells.reads(chosen),
        )

    def rpc(cells: Benchmark, chosen: Sequence[str]) -> ScoreDefinition:
        text = f"mean {cells.measure.label} over {len(kinds)} kinds by that of the clean images"
        return ScoreDefinition(
            f"{prefix}rpc{suffix}",
            f"{label} rPC{of_fan}",
            "%",
            "high",
            text,
            lambda means: retention(_mean(cells, means, chosen), cells.clean_value(means)),
            note=note,
            scale="ratio",
            reads=cells.reads(chosen, clean=True),
        )

    return benchmark.over(kinds, mpc) + (benchmark.over(kinds, rpc) if benchmark.clean else [])


def _kind(benchmark: Benchmark, kind: str, prefix: str) -> ScoreDefinition:
    names = tuple(benchmark.severities(kind).values())
    complete = benchmark.complete(kind)
    label = benchmark.measure.label
    return ScoreDefinition(
        f"{prefix}ap/{kind}" + ("" if complete else "_partial"),
        kind if complete else f"{kind} (partial: severity {', '.join(map(str, sorted(benchmark.severities(kind))))})",
        "%",
        "high",
        f"{label} under {kind}, mean over the severities",
        lambda means: 100 * np.asarray(mean_of([benchmark.measure.of(means, name) for name in names])),
        missing=() if complete else tuple(f"{kind}/{s}" for s in SEVERITIES if s not in benchmark.severities(kind)),
        family="corruption",
        table=f"{prefix}ap",
        kind=kind,
        cells=names,
        reads=benchmark.reads([kind]),
    )


def _mean(benchmark: Benchmark, means: Means, kinds: Sequence[str]) -> Values:
    """mPC, Michaelis et al. 2019, Eq. 1: the mean over kinds of the mean over five severities."""
    of_kinds = [[benchmark.measure.of(means, name) for name in benchmark.severities(kind).values()] for kind in kinds]
    return mean_of([mean_of(values) for values in of_kinds])


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
