"""Error types of a detector: missed objects and wrong detections, by reason.

After TIDE (Bolya et al., ECCV 2020), which defines classification, localisation, duplicate, background and missed
errors and weights them by AP; here they are counted at one score and IoU ½, so that cells of different severity can be
compared. Sizes are COCO's: small below 32² pixels, large from 96² on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from faster_coco_eval.core import mask as coco_masks
from numpy.typing import NDArray

from holdfast.metrics.average_precision import to_xywh
from holdfast.metrics.calibration import PIXEL_BINS, pixel_calibration, pixel_error

FOREGROUND, NEAR = 0.5, 0.1  # TIDE's IoU thresholds t_f and t_b: correct from t_f on, mislocalised from t_b on
OBJECTS = ("found", "class", "location", "missed")  # outcomes of an object
DETECTIONS = ("right", "class", "location", "duplicate", "background")  # outcomes of a detection
SIZES = ("all", "small", "medium", "large")
IGNORED = len(DETECTIONS)  # in a crowd region


@dataclass(frozen=True)
class Breakage:
    """Error counts of one cell.

    Attributes:
        objects: counts by size and outcome, in the order of `SIZES` and `OBJECTS`.
        detections: counts by outcome, in the order of `DETECTIONS`.
        recall: fraction of objects with IoU ≥ ½ with any detection, regardless of class and score: the recall of the
            proposals.
        calibration: expected calibration error of the scores, percent: the mean |score − fraction of correct
            detections|, over ten bins weighted by their detections (all scores, not only those above the threshold).
    """

    objects: NDArray[np.int64]
    detections: NDArray[np.int64]
    recall: float
    calibration: float


def breakage(fields: Mapping[str, Any], *, score: float = 0.5) -> Breakage:
    """Count the error types in a cell's records.

    As in COCO, a detection that finds no object is ignored inside a crowd region of its class.

    Args:
        fields: fields of a cell's records.
        score: threshold of detections, except for recall and calibration.
    """
    objects = np.zeros((len(SIZES), len(OBJECTS)), np.int64)
    detections = np.zeros(len(DETECTIONS), np.int64)
    covered, calibration = [np.zeros(0, bool)], np.zeros((3, PIXEL_BINS))
    for image in _images(fields):
        kinds = image.detection_outcomes(image.scores >= score)
        detections += np.bincount(kinds[kinds != IGNORED], minlength=len(DETECTIONS))
        outcomes = image.object_outcomes(image.scores >= score)
        for size, members in enumerate(image.sizes):
            objects[size] += np.bincount(outcomes[members], minlength=len(OBJECTS))
        covered.append(image.overlaps.max(axis=0, initial=0) >= FOREGROUND)
        kinds = image.detection_outcomes(np.ones(len(image.scores), bool))
        calibration += pixel_calibration(image.scores[kinds != IGNORED], kinds[kinds != IGNORED] == 0)
    every = np.concatenate(covered)
    recall = float(every.mean()) if every.size else float("nan")
    return Breakage(objects, detections, recall, 100 * float(pixel_error(calibration)))


@dataclass(frozen=True)
class _Image:
    """One image without crowd regions: IoUs (detections, objects), sorted by score.

    ``in_crowd`` says of every detection whether it lies in a crowd region of its class.
    """

    overlaps: NDArray[np.float64]
    same: NDArray[np.bool_]
    in_crowd: NDArray[np.bool_]
    scores: NDArray[np.float64]
    sizes: tuple[NDArray[np.bool_], ...]

    def detection_outcomes(self, counted: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Outcome of every counted detection, as an index into `DETECTIONS`, or `IGNORED`."""
        free = np.ones(self.overlaps.shape[1], bool)
        return np.array([self._classify(row, free) for row in np.flatnonzero(counted).tolist()], np.int64)

    def _classify(self, row: int, free: NDArray[np.bool_]) -> int:
        overlaps, same = self.overlaps[row], self.same[row]
        own = np.where(same, overlaps, 0)
        available = np.where(free, own, 0)
        if available.max(initial=0) >= FOREGROUND:
            free[int(np.argmax(available))] = False
            return DETECTIONS.index("right")
        if self.in_crowd[row]:
            return IGNORED
        if own.max(initial=0) >= FOREGROUND:
            return DETECTIONS.index("duplicate")
        if np.where(same, 0, overlaps).max(initial=0) >= FOREGROUND:
            return DETECTIONS.index("class")
        return DETECTIONS.index("location" if own.max(initial=0) >= NEAR else "background")

    def object_outcomes(self, counted: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Outcome of every object, as an index into `OBJECTS`."""
        free = np.ones(self.overlaps.shape[1], bool)
        rows = np.flatnonzero(counted)
        for row in rows.tolist():
            self._classify(row, free)
        overlaps, same = self.overlaps[rows], self.same[rows]
        own, other = (np.where(chosen, overlaps, 0).max(axis=0, initial=0) for chosen in (same, ~same))
        left = np.where(
            other >= FOREGROUND,
            OBJECTS.index("class"),
            np.where(own >= NEAR, OBJECTS.index("location"), OBJECTS.index("missed")),
        )
        return np.where(free, left, OBJECTS.index("found")).astype(np.int64)


def _images(fields: Mapping[str, Any]) -> Iterator[_Image]:
    for number in range(len(fields["size"])):
        crowds = fields["true_crowds"][number] > 0
        found, truth = to_xywh(fields["boxes"][number]), to_xywh(fields["true_boxes"][number])
        order = np.argsort(-fields["scores"][number], kind="stable")
        ious = np.zeros((len(found), len(truth)))
        if len(found) and len(truth):
            flags = crowds.astype(int).tolist()
            ious = np.asarray(coco_masks.iou(found, truth, flags)).reshape(len(found), len(truth))
        same = fields["labels"][number][order][:, None] == fields["true_labels"][number]
        ious = ious[order]
        yield _Image(
            ious[:, ~crowds],
            same[:, ~crowds],
            np.where(same & crowds, ious, 0).max(axis=1, initial=0) >= FOREGROUND,
            np.asarray(fields["scores"][number], np.float64)[order],
            _by_size(np.asarray(fields["true_areas"][number])[~crowds]),
        )


def _by_size(areas: NDArray[np.float64]) -> tuple[NDArray[np.bool_], ...]:
    small, large = areas < 32**2, areas >= 96**2
    return np.ones(len(areas), bool), small, ~small & ~large, large
