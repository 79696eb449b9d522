"""What can be found in an image: boxes, classes and masks."""

from dataclasses import dataclass

import numpy as np
from faster_coco_eval.core import mask as coco_masks

from holdfast.records.detections import Rle, packed_masks


@dataclass(frozen=True, eq=False)
class Objects:
    """All objects of one image.

    Attributes:
        size: the image's height and width.
        boxes: x0 y0 x1 y1 in its pixels, float64 (N, 4).
        labels: classes as indices into the source's, int64 (N,).
        areas: in pixels, as annotated; COCO's small, medium and large go by them. float64 (N,).
        crowds: regions of many objects, which count for nothing: neither found nor falsely found. bool (N,).
        masks: run lengths of every object; None where the source has boxes only.
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
        """The masks, uint8 (N, H, W)."""
        if not self.masks:
            return np.zeros((0, *self.size), np.uint8)
        return np.ascontiguousarray(coco_masks.decode(list(self.masks)).transpose(2, 0, 1))

    def trainable(self) -> "Objects":
        """Without crowds and without what is less than a pixel wide or high within the image, boxes cut off at it."""
        height, width = self.size
        boxes = self.boxes.clip(0, [width, height, width, height])
        large = (boxes[:, 2] - boxes[:, 0] >= 1) & (boxes[:, 3] - boxes[:, 1] >= 1)
        kept = np.flatnonzero(large & ~self.crowds & (self.areas > 0))
        masks = None if self.masks is None else tuple(self.masks[number] for number in kept)
        return Objects(self.size, boxes[kept], self.labels[kept], self.areas[kept], self.crowds[kept], masks)


def recorded_fields(objects: Objects) -> dict[str, np.ndarray]:
    """What records keep of an image's objects, see :data:`holdfast.records.detections.TRUE`."""
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
    """Bitmaps (N, H, W) as COCO's compressed run lengths."""
    if not len(masks):
        return ()
    return tuple(coco_masks.encode(np.asfortranarray(masks.transpose(1, 2, 0), dtype=np.uint8)))
