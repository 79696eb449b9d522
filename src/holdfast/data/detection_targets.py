"""Ground truth of detection: the boxes, classes and masks of an image."""

from dataclasses import dataclass

import numpy as np
from faster_coco_eval.core import mask as coco_masks

from holdfast.io.run_lengths import Rle, packed_masks


@dataclass(frozen=True, eq=False)
class Objects:
    """All objects of one image.

    Attributes:
        size: the image's height and width.
        boxes: x0, y0, x1, y1 in pixels, float64 (N, 4).
        labels: indices into the source's classes, int64 (N,).
        areas: annotated areas in pixels, which define COCO's small, medium and large; float64 (N,).
        crowds: COCO's ``iscrowd``: matches with such regions are ignored; bool (N,).
        masks: run-length encoded masks; None if the source has only boxes.
    """

    size: tuple[int, int]
    boxes: np.ndarray
    labels: np.ndarray
    areas: np.ndarray
    crowds: np.ndarray
    masks: tuple[Rle, ...] | None = None

    def __len__(self) -> int:
        return len(self.boxes)

    def bitmaps(self) -> np.ndarray:
        """Decode the masks, uint8 (N, H, W)."""
        if not self.masks:
            return np.zeros((0, *self.size), np.uint8)
        return np.ascontiguousarray(coco_masks.decode(list(self.masks)).transpose(2, 0, 1))

    def trainable(self) -> "Objects":
        """Clip boxes to the image and drop crowds and objects under one pixel wide or high."""
        height, width = self.size
        boxes = self.boxes.clip(0, [width, height, width, height])  # half-open: x1 = width is the right border
        large = (boxes[:, 2] - boxes[:, 0] >= 1) & (boxes[:, 3] - boxes[:, 1] >= 1)
        rows = np.flatnonzero(large & ~self.crowds & (self.areas > 0))
        masks = None if self.masks is None else tuple(self.masks[row] for row in rows)
        return Objects(self.size, boxes[rows], self.labels[rows], self.areas[rows], self.crowds[rows], masks)


def recorded_fields(objects: Objects) -> dict[str, np.ndarray]:
    """Arrays of an image's objects for the records, see `holdfast.records.detections.TRUE`."""
    masks, lengths = packed_masks(objects.masks or ())
    return {
        "true_boxes": objects.boxes.astype(np.float64),
        "true_labels": objects.labels.astype(np.int32),
        "true_areas": objects.areas.astype(np.float64),
        "true_crowds": objects.crowds.astype(np.uint8),
        "true_masks": masks,
        "true_mask_lengths": lengths,
    }


def run_lengths(masks: np.ndarray) -> tuple[Rle, ...]:
    """Encode bitmaps (N, H, W) as COCO's compressed run lengths."""
    if not len(masks):
        return ()
    return tuple(coco_masks.encode(np.asfortranarray(masks.transpose(1, 2, 0), dtype=np.uint8)))
