"""Score definitions of segmentation from pixel counts: mIoU of every cell, and the papers' averages of it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from holdfast.benchmarks import benchmarks_of
from holdfast.cells import CellSpec
from holdfast.errors import HoldfastError
from holdfast.metrics.calibration import PIXEL_BINS, pixel_error
from holdfast.metrics.corruption import Values, mean_of, plain
from holdfast.metrics.iou import (
    BANDS,
    BOUNDARY_SHARE,
    KINDS,
    cells_of,
    class_iou,
    mean_accuracy,
    mean_iou,
    pixel_accuracy,
    severity_rule,
)
from holdfast.metrics.jackknife import INDEPENDENT, grouping_of, groups_of
from holdfast.metrics.scoring.base import (
    CellScore,
    Compute,
    Key,
    Means,
    MeasuredCells,
    Reference,
    ScoreDefinition,
    at_fewer_severities,
    benchmark_scores,
    clean_score,
    column,
    condition_scores,
    group_scores,
    mean_score,
    single_scores,
)
from holdfast.metrics.scoring.interface import RunningScore, Scoring
from holdfast.records.records import CellRecord

CONDITIONS = ("fog", "night", "rain", "snow")  # ACDC
PARTS = ("true", "predicted", "both")
ALL, BOUNDARY, SURE = "", "boundary", "sure:"


def quantity(part: str, label: int, *, region: str = ALL) -> str:
    """Name of a column of counts: ``both:3``, or ``both:3@night`` for some pixels or images only."""
    return f"{part}:{label}@{region}" if region else f"{part}:{label}"


def count_columns(cell: CellRecord) -> dict[str, np.ndarray]:
    """Three counts per class and image; for clean images also by boundary distance, near contours, and by group."""
    columns = _columns(cell.counts)
    if cell.spec.family != "clean":
        return columns
    if "calibration" in cell.fields:  # not in records of earlier versions
        columns |= {
            f"{SURE}{part}:{bin}": cell.calibration[:, part, bin].astype(np.float64)
            for part in range(3)
            for bin in range(PIXEL_BINS)
        }
    bands = {band_name(number): cell.bands[:, number] for number in range(cell.bands.shape[1])}
    for region, counts in {**bands, BOUNDARY: cell.boundary, **_by_group(cell)}.items():
        columns |= _columns(counts, region=region)
    return columns


def band_name(number: int) -> str:
    """Name of a band of distances to the label boundary: ``≤2px``, ``≤4px`` …, ``>16px``."""
    return f"≤{BANDS[number]}px" if number < len(BANDS) else f">{BANDS[-1]}px"


def _columns(counts: np.ndarray, *, region: str = ALL) -> dict[str, np.ndarray]:
    return {
        quantity(part, label, region=region): counts[:, number, label].astype(np.float64)
        for number, part in enumerate(PARTS)
        for label in range(counts.shape[-1])
    }


def _by_group(cell: CellRecord) -> dict[str, np.ndarray]:
    """Counts by recording, city or condition; zero for images outside the group."""
    grouping = grouping_of(cell.ids)
    if grouping is None:
        return {}
    groups = groups_of(cell.ids, grouping)
    names = np.unique(groups)
    return {str(name): cell.counts * (groups == name)[:, None, None] for name in names} if len(names) > 1 else {}


def counts_of(means: Means, cell: str, *, classes: int, region: str = ALL) -> np.ndarray:
    """Mean counts of a cell as ``metrics.iou`` takes them, (…, 3, classes)."""
    counts = np.array([means[key] for key in count_keys(cell, classes=classes, region=region)], dtype=np.float64)
    return np.moveaxis(counts.reshape(len(PARTS), classes, *counts.shape[1:]), (0, 1), (-2, -1))


def count_keys(cell: str, *, classes: int, region: str = ALL) -> tuple[Key, ...]:
    """Keys of the three counts of every class."""
    return tuple(column(cell, quantity(part, label, region=region)) for part in PARTS for label in range(classes))


def cell_miou(classes: int) -> CellScore:
    """mIoU of a cell."""

    def of(means: Means, cell: str) -> Values:
        return plain(mean_iou(counts_of(means, cell, classes=classes)))

    counts = tuple(name for _, name in count_keys("", classes=classes))
    return CellScore("miou", "mIoU", "mIoU-C", of, quantities=counts)


def _check_classes(classes: int, cells: Sequence[CellSpec], columns: Collection[Key]) -> None:
    """Raise an error if the header's number of classes does not match the counts."""
    known = set(columns)
    for cell in cells:
        first, last, beyond = (column(cell.name, quantity(PARTS[0], c)) in known for c in (0, classes - 1, classes))
        if first and (not last or beyond):
            raise HoldfastError(
                f"records of a segmenter must have the {classes} classes of their header; evaluate again"
            )


def segmentation_formulas(
    cells: Sequence[CellSpec], *, columns: Collection[Key], header: Mapping[str, Any]
) -> list[ScoreDefinition]:
    """Every score that these cells allow."""
    classes = int(header.get("classes", 0))
    names = [str(name) for name in header.get("class_names", range(classes))]
    _check_classes(classes, cells, columns)
    if len(names) != classes:
        raise HoldfastError(
            f"records of a segmenter must name their {classes} classes, got {len(names)} names; evaluate again"
        )

    measure = cell_miou(classes)
    clean = next((cell.name for cell in cells if cell.family == "clean"), None)
    return [
        *clean_score(cells, measure),
        *(_clean_details(clean, names) if clean else []),
        *(_calibration(clean) if clean and column(clean, f"{SURE}0:0") in columns else []),
        *corruption_formulas(cells, measure),
        *condition_scores(cells, measure),
        *(_group_scores(clean, columns, classes=classes) if clean else []),
        *single_scores(cells, measure),
        *(_class_scores(clean, names) if clean else []),
    ]


def _clean_details(clean: str, names: Sequence[str]) -> list[ScoreDefinition]:
    classes = len(names)

    def score(
        name: str, label: str, text: str, of: Callable[..., Any], region: str = ALL, **about: Any
    ) -> ScoreDefinition:
        reads = count_keys(clean, classes=classes, region=region)
        compute: Compute = lambda means: plain(100 * of(counts_of(means, clean, classes=classes, region=region)))  # noqa: E731
        return ScoreDefinition(name, label, "%", "high", text, compute, reads=reads, **about)

    contours = f"mean Boundary IoU (Cheng et al. 2021), {100 * BOUNDARY_SHARE:g} % of the diagonal, clean images"
    accuracy = "share of labelled pixels that are right, clean images"
    near = "mIoU of the pixels {} from the label boundary, clean images"
    bands = [band_name(number) for number in range(len(BANDS) + 1)]
    return [
        score("pixel_accuracy", "pixel accuracy", accuracy, pixel_accuracy),
        score("mean_accuracy", "mAcc", "mean accuracy of the classes, clean", mean_accuracy),
        score("boundary_iou", "boundary IoU", contours, mean_iou, BOUNDARY),
        *(
            score(f"band/{name}", f"mIoU {name}", near.format(name), mean_iou, name, table="band", kind=name)
            for name in bands
        ),
    ]


def _calibration(clean: str) -> list[ScoreDefinition]:
    keys = [[column(clean, f"{SURE}{part}:{bin}") for bin in range(PIXEL_BINS)] for part in range(3)]

    def compute(means: Means) -> Values:
        sums = [[means[key] for key in part] for part in keys]
        return plain(100 * pixel_error(np.moveaxis(np.array(sums), (0, 1), (-2, -1))))

    text = f"expected calibration error of the labelled pixels, {PIXEL_BINS} bins of confidence, clean images"
    reads = tuple(key for part in keys for key in part)
    return [ScoreDefinition("ece", "ECE (pixels)", "%", "low", text, compute, reads=reads)]


def _class_scores(clean: str, names: Sequence[str]) -> list[ScoreDefinition]:
    def percent(label: int) -> Compute:
        return lambda means: plain(100 * class_iou(counts_of(means, clean, classes=len(names)))[..., label])

    about: dict[str, Any] = {"table": "iou", "reads": count_keys(clean, classes=len(names))}
    return [
        ScoreDefinition(
            f"iou/{name}", name, "%", "high", f"IoU of {name}, clean images", percent(label), kind=name, **about
        )
        for label, name in enumerate(names)
    ]


def _group_scores(clean: str, columns: Collection[Key], *, classes: int) -> list[ScoreDefinition]:
    """mIoU of every recording, city or condition of the clean images, and the mean over ACDC's four conditions."""
    known = {ALL, BOUNDARY, *map(band_name, range(len(BANDS) + 1))}
    regions = dict.fromkeys(name.rpartition("@")[2] for cell, name in columns if cell == clean and "@" in name)
    groups = [region for region in regions if region not in known]

    def of(group: str) -> Compute:
        return lambda means: plain(100 * mean_iou(counts_of(means, clean, classes=classes, region=group)))

    def reads(*chosen: str) -> tuple[Key, ...]:
        return tuple(key for group in chosen for key in count_keys(clean, classes=classes, region=group))

    what = "condition" if set(groups) <= set(CONDITIONS) else "group"
    scores = [
        ScoreDefinition(
            f"{what}/{name}",
            name,
            "%",
            "high",
            f"mIoU of the images of {name}",
            of(name),
            table=what,
            kind=name,
            reads=reads(name),
        )
        for name in groups
    ]
    if what == "group" or not groups:
        return scores
    text = f"mean over {len(groups)} conditions of the mIoU of each; the clean score pools all images"
    mean: Compute = lambda means: mean_of([of(group)(means) for group in groups])  # noqa: E731
    name, label = "mean_condition_miou", "mean of conditions"
    return [ScoreDefinition(name, label, "%", "high", text, mean, reads=reads(*groups)), *scores]


# ---------------------------------------------------------------------- corruptions


def corruption_formulas(cells: Sequence[CellSpec], measure: CellScore) -> list[ScoreDefinition]:
    """Mean and retention by every severity rule that the cells allow, then groups and kinds."""
    measured = MeasuredCells(tuple(cells), measure, None)
    return [
        *(score for row in benchmarks_of("segmentation") for score in benchmark_scores(row, measured)),
        *at_fewer_severities(benchmarks_of("segmentation")[0], measured),
        *(score for row in benchmarks_of("segmentation") for score in group_scores(row, measured)),
        *(_kind_score(measured, kind) for kind in KINDS if measured.severities(kind)),
    ]


def _kind_score(measured: MeasuredCells, kind: str) -> ScoreDefinition:
    """mIoU under a kind over all severities, or over the papers'; else over the measured ones, as partial."""
    there, measure = measured.severities(kind), measured.measure
    complete = next((rule for rule in ("all", "paper") if measured.has(kind, severity_rule(rule)[kind])), None)
    used = sorted(there) if complete is None else severity_rule(complete)[kind]
    text = f"{measure.label} under {kind}, mean over severities {', '.join(map(str, used))}"
    about = {"family": "corruption", "table": "miou", "kind": kind}
    formula = mean_score(measure, [there[severity] for severity in used], f"miou/{kind}", kind, text, **about)
    if complete:
        return formula
    missing = tuple(cell for cell in cells_of(kind, rule="paper") if cell not in measured.all_names)
    return replace(formula, name=f"{formula.name}_partial", label=f"{kind} (partial)", missing=missing)


class SegmentationScoring(Scoring):
    """mIoU of pooled pixel counts, by both papers' averages; boundaries, interior, calibration."""

    fields: Mapping[str, Any] = {
        "counts": np.int32,
        "bands": np.int32,
        "boundary": np.int32,
        "calibration": np.float32,
    }
    cell_words = "mIoU"
    per_image = "Percent of the labelled pixels that are right, mean over the images"
    first_images = 128  # mIoU is biased by −4.4 points at 4 images per cell, by −0.3 at 128
    headline = ("clean", "mean_corruption_miou", "retention", "cityscapes_c", "cityscapes_c_retention")
    running = RunningScore("mIoU", lambda cell: cell.counts.sum(axis=0, dtype=np.int64), mean_iou)
    whole_sets = True

    def cell_scores(self, header: Mapping[str, Any]) -> dict[str, CellScore]:
        """mIoU of a cell."""
        return {"miou": cell_miou(int(header.get("classes", 0)))}

    def set_figures(self, cells: Mapping[str, CellRecord]) -> dict[str, np.ndarray]:
        """IoU of every class in every cell, which a study stores."""
        return {"class_iou": np.stack([class_iou(cell.counts.sum(axis=0)) for cell in cells.values()])}

    def right(self, cell: CellRecord) -> np.ndarray:
        """Fraction of correct pixels among the labelled pixels of each image."""
        return np.nan_to_num(pixel_accuracy(cell.counts)) if len(cell) else np.empty(0)

    def rows(self, cell: CellRecord) -> dict[str, np.ndarray]:
        """Id, labelled pixels, correct pixels and per-image mIoU."""
        counts = cell.counts
        return {
            "id": cell.ids,
            "labelled": counts[:, 0].sum(axis=-1),
            "right": counts[:, 2].sum(axis=-1),
            "miou": mean_iou(counts) if len(cell) else np.empty(0),
        }

    def remark(self, cell: CellRecord) -> str:
        """ε and steps of an attack, because published settings vary."""
        settings = cell.header.get("settings", {})
        return f"ε = {255 * settings['eps']:g}/255, {settings['steps']} steps" if "eps" in settings else ""

    def columns(self, cell: CellRecord) -> dict[str, np.ndarray]:
        """Three counts per class; for clean images also by boundary distance, near contours, and by recording."""
        return count_columns(cell)

    def formulas(
        self,
        cells: Sequence[CellSpec],
        *,
        columns: Collection[Key],
        header: Mapping[str, Any],
        reference: Reference | None,
    ) -> list[ScoreDefinition]:
        """Clean scores, corruptions by both papers' rules, conditions or recordings, attacks."""
        return segmentation_formulas(cells, columns=columns, header=header)

    def interval_note(self, cells: Mapping[str, CellRecord]) -> str:
        """A warning if ids do not show whether images are frames of a recording."""
        ids = next(iter(cells.values())).ids
        if grouping_of(ids) is not None or all(str(name).startswith(INDEPENDENT) for name in ids):
            return ""
        return "intervals assume independent images: too narrow if they are frames of a recording"


SCORING = SegmentationScoring()
