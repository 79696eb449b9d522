"""Score definitions of detection: AP on clean images, mPC and rPC over both published sets of kinds.

AP belongs to a whole set and is not a mean over images: definitions get the AP of every cell, and the AP without
each group of images (`holdfast.metrics.ap_jackknife`).
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from holdfast.benchmarks import benchmarks_of
from holdfast.cells import CellSpec
from holdfast.metrics.ap_jackknife import cell_replicates
from holdfast.metrics.average_precision import SCORES, match_image, record_scores
from holdfast.metrics.detection_errors import breakage
from holdfast.metrics.jackknife import Groups
from holdfast.metrics.scoring.base import (
    CellScore,
    Compute,
    Key,
    MeasuredCells,
    Reference,
    ScoreDefinition,
    at_fewer_severities,
    benchmark_scores,
    column,
    group_scores,
    kind_score,
)
from holdfast.metrics.scoring.interface import Scoring
from holdfast.records.detections import FIELDS
from holdfast.records.records import CellRecord

FEW_OBJECTS = 10  # of a class; with fewer, AP is biased upwards and its interval unreliable
BOX, MASK = "box_", "mask_"  # prefixes of column names
_KEYS = {"bbox": BOX, "segm": MASK}
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
        *at_fewer_severities(benchmarks_of("detection")[0], benchmark, **words),
        *(score for row in benchmarks_of("detection") for score in group_scores(row, benchmark, **words)),
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


class DetectionScoring(Scoring):
    """COCO's AP of boxes and masks: of whole sets, hence replicates instead of means over images."""

    fields: Mapping[str, Any] = FIELDS
    per_image = "F1 of the detections (score and IoU from ½), mean over the images, percent"
    cell_words = "box AP"
    first_images = 500  # AP of 80 classes is biased by +3 points up to 64 images per cell, by +0.5 at 512
    headline = ("clean", "mpc", "rpc", "mpc_fan", "rpc_fan", "mask_clean", "mask_mpc", "mask_rpc")
    whole_sets = True
    replicates_words = "AP intervals"

    def __init__(self) -> None:
        self._replicates: WeakKeyDictionary[CellRecord, dict[bytes, dict[str, np.ndarray]]] = WeakKeyDictionary()

    def cell_scores(self, header: Mapping[str, Any]) -> dict[str, CellScore]:
        """AP of a cell's boxes, and of its masks."""
        return {"box_ap": cell_ap(BOX), "mask_ap": cell_ap(MASK)}

    def set_figures(self, cells: Mapping[str, CellRecord]) -> dict[str, np.ndarray]:
        """Error types of every cell, which a study stores."""
        broken = [breakage(cell.fields) for cell in cells.values()]
        return {
            "objects": np.stack([one.objects for one in broken]),
            "detections": np.stack([one.detections for one in broken]),
            "recall": np.array([one.recall for one in broken]),
            "calibration": np.array([one.calibration for one in broken]),
        }

    def replicates(self, cell: CellRecord, groups: Groups | None) -> dict[str, np.ndarray]:
        """AP, AP50 and AP75 of boxes and masks, (1 + groups,); of clean images also COCO's other scores, (1,).

        Scores without any object, such as AP of large ones, are left out. Cached, because matching is slow and tables,
        figures and comparisons need the same.
        """
        key = b"" if groups is None else hashlib.blake2b(groups.numbers.tobytes(), digest_size=16).digest()
        held = self._replicates.setdefault(cell, {})
        if key not in held and groups is None and held:  # the values of any groups
            held[key] = {name: values[:1] for name, values in next(iter(held.values())).items()}
        elif key not in held:
            held[key] = _coco_replicates(cell, groups)
        return held[key]

    def interval_note(self, cells: Mapping[str, CellRecord]) -> str:
        """A warning if classes have few objects: their AP is biased upwards."""
        labels = np.concatenate([np.zeros(0, np.int32), *next(iter(cells.values())).fields["true_labels"]])
        counts = np.bincount(labels)
        few, there = int(((counts > 0) & (counts < FEW_OBJECTS)).sum()), int((counts > 0).sum())
        if not few:
            return ""
        return (
            f"few objects: {few} of {there} classes have fewer than {FEW_OBJECTS}; AP of so few is biased upwards, "
            "and its interval is rough"
        )

    def right(self, cell: CellRecord) -> np.ndarray:
        """F1 of every image at score and IoU ½; 1 for an image without objects and detections."""
        counts = [match_image(cell.fields, image) for image in range(len(cell))]
        return np.array([2 * hit / (seen + there) if seen + there else 1.0 for hit, seen, there in counts])

    def rows(self, cell: CellRecord) -> dict[str, np.ndarray]:
        """Id, number of objects, detections with score ≥ ½, correct ones, and F1."""
        counts = np.array([match_image(cell.fields, image) for image in range(len(cell))]).reshape(-1, 3)
        return {
            "id": cell.ids,
            "objects": counts[:, 2],
            "detections": counts[:, 1],
            "found": counts[:, 0],
            "f1": self.right(cell),
        }

    def columns(self, cell: CellRecord) -> dict[str, np.ndarray]:
        """Nothing: AP is not a mean over images, see `replicates`."""
        return {}

    def foreseen_columns(self, cells: Sequence[CellSpec]) -> Collection[Key]:
        """AP of boxes; of masks only records tell whether there are any."""
        return [column(cell.name, f"{BOX}AP") for cell in cells]

    def formulas(
        self,
        cells: Sequence[CellSpec],
        *,
        columns: Collection[Key],
        header: Mapping[str, Any],
        reference: Reference | None,
    ) -> list[ScoreDefinition]:
        """AP of boxes and masks on clean images, mPC and rPC of either protocol, and every kind's AP."""
        return detection_formulas(cells, columns=columns)


def _coco_replicates(cell: CellRecord, groups: Groups | None) -> dict[str, np.ndarray]:
    found = cell_replicates(cell.fields, groups)
    if cell.spec.family == "clean":  # no score reads the sizes and recalls of corrupted images
        others = {
            f"{_KEYS[overlap]}{name}": np.array([value])
            for overlap, named in record_scores(cell.fields).items()
            for name, value in named.items()
        }
        found = others | found
    return {name: values for name, values in found.items() if not np.isnan(values[0])}


SCORING = DetectionScoring()
