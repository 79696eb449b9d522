"""The scores of a detector as formulas: AP on clean images, mPC and rPC of both published choices of kinds.

AP belongs to a whole set and cannot be computed from means over images: what a formula gets is the cell's AP in every
row, and for resampled means it has no answer. Intervals come from sets that are drawn and scored anew, one number per
draw (:mod:`holdfast.metrics.set_draws`).
"""

from collections.abc import Callable, Collection, Sequence

import numpy as np

from holdfast.corruptions.catalog import SEVERITIES
from holdfast.metrics.average_precision import COCO_C, COCO_C_FAN, SCORES, mean_performance, relative_performance
from holdfast.metrics.corruption import Values
from holdfast.metrics.formulas import Benchmark, Compute, Formula, Means, Measure, column
from holdfast.records.cells import CellSpec

BOX, MASK = "box_", "mask_"  # in front of a column's name
OVER = {BOX: "boxes", MASK: "masks"}
FAN_NOTE = "16 kinds: flatters rPC by about 6 points against COCO-C's 15, never compare the two"
SIZES = {"s": "small objects (below 32² px)", "m": "medium ones", "l": "large ones (from 96² px)"}


def detection_formulas(cells: Sequence[CellSpec], *, columns: Sequence[str]) -> list[Formula]:
    """Every score that the cells allow, of boxes first and then of masks."""
    there = set(columns)
    kinds = [over for over in OVER if any(name.endswith(f"|{over}AP") for name in there)]
    return [formula for over in kinds for formula in _of_overlap(cells, over, there)]


def _of_overlap(cells: Sequence[CellSpec], over: str, there: Collection[str]) -> list[Formula]:
    prefix = "" if over == BOX else over
    what = f"{over.removesuffix('_')} AP"
    measure = Measure(f"{prefix}ap", what, f"{prefix}mPC", lambda means, cell: means[column(cell, f"{over}AP")])
    benchmark = Benchmark(tuple(cells), measure, None)
    return [
        *_clean_scores(benchmark, over, prefix, there),
        *_means(benchmark, COCO_C, prefix=prefix, suffix="", others=COCO_C_FAN),
        *_means(benchmark, COCO_C_FAN, prefix=prefix, suffix="_fan", others=COCO_C),
        *(_kind(benchmark, kind, prefix) for kind in benchmark.kinds()),
    ]


def _clean_scores(benchmark: Benchmark, over: str, prefix: str, there: Collection[str]) -> list[Formula]:
    clean = benchmark.clean
    if not clean:
        return []
    named = {"AP": f"{prefix}clean"} | {score: f"{prefix}{score.lower()}" for score in SCORES[1:]}
    named = {score: name for score, name in named.items() if column(clean, f"{over}{score}") in there}
    return [
        Formula(
            name,
            f"{over.removesuffix('_')} {score}",
            "%",
            "high",
            _sentence(score, over),
            _of_a_set(_percent(column(clean, f"{over}{score}"))),
            cells=(clean,),
        )
        for score, name in named.items()
    ]


def _means(
    benchmark: Benchmark, kinds: Sequence[str], *, prefix: str, suffix: str, others: Sequence[str]
) -> list[Formula]:
    """MPC and rPC over these kinds; in part only where no kind is there that belongs to the other choice alone."""
    foreign = set(others) - set(kinds)
    complete = all(map(benchmark.complete, kinds))
    if not complete and (foreign & set(benchmark.kinds()) or not set(kinds) - set(others) & set(benchmark.kinds())):
        return []
    note = FAN_NOTE if suffix else ""
    label, of_fan = benchmark.measure.label.removesuffix(" AP"), " (FAN)" if suffix else ""

    def mpc(cells: Benchmark, chosen: Sequence[str]) -> Formula:
        text = f"mean {cells.measure.label} over {len(kinds)} kinds × 5 severities"
        compute = _of_a_set(lambda means: 100 * _mean(cells, means, chosen))
        return Formula(
            f"{prefix}mpc{suffix}", f"{label} mPC{of_fan}", "%", "high", text, compute, note=note, family="corruption"
        )

    def rpc(cells: Benchmark, chosen: Sequence[str]) -> Formula:
        text = f"mean {cells.measure.label} over {len(kinds)} kinds by that of the clean images"
        compute = _of_a_set(lambda means: _relative(_mean(cells, means, chosen), cells.clean_value(means)))
        return Formula(f"{prefix}rpc{suffix}", f"{label} rPC{of_fan}", "%", "high", text, compute, note=note)

    return benchmark.over(kinds, mpc) + (benchmark.over(kinds, rpc) if benchmark.clean else [])


def _kind(benchmark: Benchmark, kind: str, prefix: str) -> Formula:
    names = tuple(benchmark.severities(kind).values())
    complete = benchmark.complete(kind)
    label = benchmark.measure.label
    return Formula(
        f"{prefix}ap/{kind}" + ("" if complete else "_partial"),
        kind if complete else f"{kind} (partial: severity {', '.join(map(str, sorted(benchmark.severities(kind))))})",
        "%",
        "high",
        f"{label} under {kind}, mean over the severities",
        _of_a_set(lambda means: 100 * float(np.mean([benchmark.measure.of(means, name) for name in names]))),
        missing=() if complete else tuple(f"{kind}/{s}" for s in SEVERITIES if s not in benchmark.severities(kind)),
        family="corruption",
        table=f"{prefix}ap",
        kind=kind,
        cells=names,
    )


def _mean(benchmark: Benchmark, means: Means, kinds: Sequence[str]) -> float:
    scores = {
        kind: [float(benchmark.measure.of(means, name)) for name in benchmark.severities(kind).values()]
        for kind in kinds
    }
    if np.isnan(list(scores.values())).any():  # images without a single object have no AP
        return float("nan")
    return mean_performance(scores, kinds=kinds)


def _relative(corrupted: float, clean: Values) -> float:
    """NaN where nothing was found on clean images either: the ratio is undefined."""
    return relative_performance(corrupted, float(clean)) if float(clean) > 0 else float("nan")


def _percent(key: str) -> Compute:
    return lambda means: 100 * means[key]


def _of_a_set(compute: Callable[[Means], Values]) -> Compute:
    """The score of the set itself; resampled means have none."""

    def of_the_set_alone(means: Means) -> Values:
        draws = np.shape(next(iter(means.values())))
        return np.full(draws, np.nan) if draws else compute(means)

    return of_the_set_alone


def _sentence(score: str, over: str) -> str:
    kind, rest = score[:2], score[2:]
    what = "average precision" if kind == "AP" else "average recall"
    if rest in SIZES:
        return f"{what} of {OVER[over]} over IoU .50:.05:.95, {SIZES[rest]}, clean images"
    if kind == "AP":
        return f"{what} of {OVER[over]} at IoU {f'.{rest}' if rest else '.50:.05:.95'}, clean images"
    return f"{what} of {OVER[over]} over IoU .50:.05:.95 with {rest} detections per image, clean images"
