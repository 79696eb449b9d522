"""Records of detections: arrays of varying length per image, masks as COCO run-length encoding (RLE).

Every cell holds the ground truth beside the detections, so that its scores need neither model nor data nor another
file.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.io.run_lengths import unpacked_masks

# per image: height and width; boxes as x0 y0 x1 y1 in pixels; class indices from 0; the RLE of all masks as one text,
# and the length of each (empty without masks)
FOUND = {
    "boxes": np.float32,
    "labels": np.int32,
    "scores": np.float32,
    "masks": np.uint8,
    "mask_lengths": np.int32,
}
TRUE = {
    "true_boxes": np.float64,
    "true_labels": np.int32,
    "true_areas": np.float64,
    "true_crowds": np.uint8,
    "true_masks": np.uint8,
    "true_mask_lengths": np.int32,
}
ROW = {"size": np.int32, "masked": np.uint8}  # masked: whether both the data and the model have masks
FIELDS: dict[str, Any] = {**ROW, **FOUND, **TRUE}


def has_masks(fields: Mapping[str, Any]) -> bool:
    """Whether both the data and the model have masks, in every image."""
    if "masked" not in fields:
        raise HoldfastError(
            "records of a detector must have the field 'masked', but these do not: they belong to another task"
        )
    return len(fields["masked"]) > 0 and bool(np.all(fields["masked"]))


def coco_truth(fields: Mapping[str, Any], *, classes: int, masks: bool) -> dict[str, Any]:
    """Ground truth of a cell in COCO format; image ids are row numbers, category ids start at 1."""
    annotations: list[dict[str, Any]] = []
    for image, boxes in enumerate(fields["true_boxes"]):
        rows = _rows(fields, image, prefix="true_", masks=masks)
        areas, crowds = fields["true_areas"][image], fields["true_crowds"][image]
        for row, area, crowd in zip(rows, areas, crowds, strict=True):
            annotations.append(row | {"id": len(annotations) + 1, "area": float(area), "iscrowd": int(crowd)})
        assert len(rows) == len(boxes)
    images = [{"id": n, "height": int(h), "width": int(w)} for n, (h, w) in enumerate(fields["size"])]
    categories = [{"id": number, "name": str(number)} for number in range(1, classes + 1)]
    return {"images": images, "categories": categories, "annotations": annotations}


def coco_found(fields: Mapping[str, Any], *, masks: bool) -> list[dict[str, Any]]:
    """Detections of a cell in COCO format."""
    found: list[dict[str, Any]] = []
    for image, scores in enumerate(fields["scores"]):
        rows = _rows(fields, image, prefix="", masks=masks)
        found += [row | {"score": float(score)} for row, score in zip(rows, scores, strict=True)]
    return found


def _rows(fields: Mapping[str, Any], image: int, *, prefix: str, masks: bool) -> list[dict[str, Any]]:
    boxes = fields[f"{prefix}boxes"][image].astype(np.float64)
    boxes = np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1).tolist()
    rows: list[dict[str, Any]] = [
        {"image_id": image, "category_id": int(label) + 1, "bbox": box}
        for label, box in zip(fields[f"{prefix}labels"][image], boxes, strict=True)
    ]
    if masks:
        lengths = fields[f"{prefix}mask_lengths"][image]
        for row, mask in zip(
            rows, unpacked_masks(fields[f"{prefix}masks"][image], lengths, fields["size"][image]), strict=True
        ):
            row["segmentation"] = mask
    return rows
