"""What detectors of other projects return, by named layouts: from the arrays of one image to boxes, classes and scores.

A layout knows which array is what, how boxes and scores are written in it, and what its project does before and after:
how images are resized, whether non-maximum suppression is still to be done, and from which number classes count.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchvision.ops import batched_nms, box_convert, nms

from holdfast.errors import HoldfastError
from holdfast.registry import Registry, add_row

SUPPRESSIONS = {
    "per-class": "boxes suppress others of their class",
    "agnostic": "boxes suppress others of any class",
    "none": "the file has done it, or needs none",
}
MOST, MOST_CANDIDATES = 300, 30_000  # detections of an image that are kept, and that are suppressed among

Arrays = Mapping[str, np.ndarray]  # a file's outputs by their part: boxes, scores, rows …
Outputs = Sequence[tuple[str, np.ndarray]]  # by their names, in the file's order


@dataclass(frozen=True)
class Detections:
    """What was found in one image.

    Attributes:
        boxes: (n, 4), x0 y0 x1 y1, in pixels of what the model saw, or of the image where the layout says so.
        classes: int64 (n,), as the file counts them.
        scores: (n,).
        masks: (n, 1, H, W) at the size that the model saw, if there are any.
    """

    boxes: Tensor
    classes: Tensor
    scores: Tensor
    masks: Tensor | None = None

    def rows(self, kept: Tensor) -> "Detections":
        """Some of them, in another order."""
        masks = None if self.masks is None else self.masks[kept]
        return Detections(self.boxes[kept], self.classes[kept], self.scores[kept], masks)


@dataclass(frozen=True)
class Layout:
    """One project's way to write detections.

    Attributes:
        line: what the outputs are, for people.
        parts: finds out which output is what; None where these are not outputs of this layout.
        decode: the parts of one image, height and width of what the model saw, and the least score → detections.
        class_count: how many classes the parts are of; None where they do not tell.
        first: the number of the first class; torchvision's 0 is the background.
        image_pixels: whether boxes are in pixels of the image, not of what the model saw.
        clip: whether its project cuts boxes off at the image's borders.
        resize: how its project brings images to the model's size.
        interpolation: of that resize.
        normalisation: mean and std of [0,1] pixels, where all its models have the same.
        suppression: whether boxes are still to be suppressed, see ``SUPPRESSIONS``.
        iou: overlap from which on they are.
        least_score: detections of a lower score are not kept.
    """

    line: str
    parts: Callable[[Outputs], dict[str, np.ndarray] | None]
    decode: Callable[[Arrays, tuple[int, int], float], Detections]
    class_count: Callable[[Arrays], int | None] = lambda parts: None
    first: int = 0
    image_pixels: bool = False
    clip: bool = False
    resize: str = "stretch"
    interpolation: str = "bilinear"
    normalisation: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    suppression: str = "none"
    iou: float = 0.7
    least_score: float = 0.0


def suppress(found: Detections, *, how: str, iou: float) -> Detections:
    """Non-maximum suppression by torchvision, best first, at most 300; without suppression all, as they came."""
    if how == "none":
        return found
    best = found.scores.argsort(descending=True, stable=True)[:MOST_CANDIDATES]
    found = found.rows(best)
    if how == "agnostic":
        kept = nms(found.boxes, found.scores, iou)
    else:
        kept = batched_nms(found.boxes, found.scores, found.classes, iou)
    return found.rows(kept[:MOST])


def fitting_layouts(outputs: Outputs) -> list[str]:
    """The layouts whose outputs these can be."""
    return [name for name, layout in LAYOUTS.items() if layout.parts(outputs) is not None]


# --------------------------------------------------------------------------------------------- torchvision, Paddle


def _torchvision_parts(outputs: Outputs) -> dict[str, np.ndarray] | None:
    boxes = [each for _, each in outputs if each.ndim == 2 and each.shape[1] == 4 and _is_float(each)]
    labels = [each for _, each in outputs if each.ndim == 1 and not _is_float(each)]
    scores = [each for _, each in outputs if each.ndim == 1 and _is_float(each)]
    masks = [each for _, each in outputs if each.ndim == 4 and each.shape[1] == 1]
    if not boxes or not labels or not scores:
        return None
    found = {"boxes": boxes[0], "labels": labels[0], "scores": scores[0]}
    return found | ({"masks": masks[0]} if masks else {})


def _torchvision(parts: Arrays, seen: tuple[int, int], least: float) -> Detections:
    counts = {name: len(values) for name, values in parts.items()}
    if len(set(counts.values())) > 1:
        raise HoldfastError(f"{', '.join(counts)} must be equally many, got {', '.join(map(str, counts.values()))}")
    masks = _floats(parts["masks"]) if "masks" in parts else None
    labels = torch.from_numpy(parts["labels"].astype(np.int64))
    found = Detections(_floats(parts["boxes"]), labels, _floats(parts["scores"]), masks)
    return found.rows(found.scores >= least)


def _paddle_parts(outputs: Outputs) -> dict[str, np.ndarray] | None:
    rows = [each for _, each in outputs if each.ndim == 2 and _is_float(each)]
    counts = [each for _, each in outputs if each.ndim == 1 and not _is_float(each)]
    if len(rows) != 1 or len(counts) != 1:
        return None
    if rows[0].shape == (1, 1) and rows[0][0, 0] == -1:  # how older versions write that there is nothing
        return {"rows": np.zeros((0, 6), np.float32), "counts": np.zeros_like(counts[0])}
    return {"rows": rows[0], "counts": counts[0]} if rows[0].shape[1] == 6 else None


def _paddle(parts: Arrays, seen: tuple[int, int], least: float) -> Detections:
    rows, counts = _floats(parts["rows"]), parts["counts"]
    if counts.min(initial=0) < 0 or int(counts.sum()) != len(rows):
        raise HoldfastError(f"counts of rows must add up to the {len(rows)} rows there are, got {counts.tolist()}")
    rows = rows[: int(counts[0]) if len(counts) else 0]
    rows = rows[(rows[:, 0] != -1) & (rows[:, 1] >= least)]  # −1 is no class
    return Detections(rows[:, 2:], _whole(rows[:, 0]), rows[:, 1])


# --------------------------------------------------------------------------------------------- YOLO


def _one_grid(outputs: Outputs) -> np.ndarray | None:
    """The only array of three axes; the grids of five that YOLOv5 also exports are not needed."""
    grids = [each for _, each in outputs if each.ndim == 3 and _is_float(each)]
    others = [each for _, each in outputs if each.ndim not in (3, 5)]
    return grids[0] if len(grids) == 1 and not others else None


def _yolov8_parts(outputs: Outputs) -> dict[str, np.ndarray] | None:
    grid = _one_grid(outputs)
    return {"grid": grid} if grid is not None and 5 <= grid.shape[1] < grid.shape[2] else None


def _yolov8(parts: Arrays, seen: tuple[int, int], least: float) -> Detections:
    grid = torch.from_numpy(np.asarray(parts["grid"][0], np.float32))
    return _candidates(grid[:4].T, grid[4:].T, least)


def _yolov5_parts(outputs: Outputs) -> dict[str, np.ndarray] | None:
    grid = _one_grid(outputs)
    return {"grid": grid} if grid is not None and 6 <= grid.shape[2] < grid.shape[1] else None


def _yolov5(parts: Arrays, seen: tuple[int, int], least: float) -> Detections:
    grid = torch.from_numpy(np.asarray(parts["grid"][0], np.float32))
    grid = grid[grid[:, 4] > least]
    return _candidates(grid[:, :4], grid[:, 5:] * grid[:, 4:5], least)


def _candidates(boxes: Tensor, scores: Tensor, least: float) -> Detections:
    """Every class of every place whose score is above the least; a place may be of several classes, as in YOLO's AP."""
    places, classes = torch.nonzero(scores > least, as_tuple=True)
    return Detections(box_convert(boxes[places], "cxcywh", "xyxy"), classes, scores[places, classes])


def _yolov10_parts(outputs: Outputs) -> dict[str, np.ndarray] | None:
    grid = _one_grid(outputs)
    return {"rows": grid} if grid is not None and grid.shape[2] == 6 else None


def _yolov10(parts: Arrays, seen: tuple[int, int], least: float) -> Detections:
    rows = _floats(parts["rows"][0])
    rows = rows[rows[:, 4] > least]
    return Detections(rows[:, :4], _whole(rows[:, 5]), rows[:, 4])


# --------------------------------------------------------------------------------------------- DETR


def _detr_parts(outputs: Outputs) -> dict[str, np.ndarray] | None:
    queries = [(name, each) for name, each in outputs if each.ndim == 3 and _is_float(each)]
    if len(queries) != 2 or queries[0][1].shape[:2] != queries[1][1].shape[:2]:
        return None
    boxes = [number for number, (_, each) in enumerate(queries) if each.shape[2] == 4]
    if len(boxes) == 2:  # four classes: the names decide
        boxes = [number for number, (name, _) in enumerate(queries) if "box" in name.lower()]
    if len(boxes) != 1 or queries[1 - boxes[0]][1].shape[2] < 1:
        return None
    return {"boxes": queries[boxes[0]][1], "logits": queries[1 - boxes[0]][1]}


def _detr(parts: Arrays, seen: tuple[int, int], least: float) -> Detections:
    """Softmax over the classes and "no object", which is the last; the best class of every query."""
    scores, classes = _floats(parts["logits"][0]).softmax(-1)[:, :-1].max(-1)
    found = Detections(_unit_boxes(parts["boxes"][0], seen), classes, scores)
    return found.rows(found.scores >= least)


def _rt_detr(parts: Arrays, seen: tuple[int, int], least: float) -> Detections:
    """A sigmoid per class; the best pairs of query and class, as many as there are queries."""
    scores = _floats(parts["logits"][0]).sigmoid()
    best, pairs = scores.flatten().topk(len(scores))
    queries, classes = pairs // scores.shape[1], pairs % scores.shape[1]
    found = Detections(_unit_boxes(parts["boxes"][0], seen)[queries], classes, best)
    return found.rows(found.scores >= least)


def _unit_boxes(boxes: np.ndarray, seen: tuple[int, int]) -> Tensor:
    """Centres and sides in shares of the image → corners in pixels."""
    height, width = seen
    corners = box_convert(_floats(boxes), "cxcywh", "xyxy")
    return corners * corners.new_tensor([width, height, width, height])


# --------------------------------------------------------------------------------------------- numbers


def _is_float(values: np.ndarray) -> bool:
    return np.issubdtype(values.dtype, np.floating)


def _floats(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.float32))


def _whole(classes: Tensor) -> Tensor:
    if not torch.equal(classes, classes.round()):
        first = float(classes[classes != classes.round()][0])
        raise HoldfastError(f"classes must be whole numbers, got {first:g}: another layout? name it with --outputs")
    return classes.long()


_PLAIN_PIXELS: Any = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
_YOLO: Any = {"resize": "letterbox", "interpolation": "opencv-bilinear", "normalisation": _PLAIN_PIXELS, "clip": True}

_SHIPPED = {
    "torchvision": Layout(
        "boxes (n, 4), labels (n) and scores (n), perhaps masks; the file has done everything else",
        _torchvision_parts,
        _torchvision,
        first=1,
        resize="none",
        normalisation=_PLAIN_PIXELS,
    ),
    "paddle": Layout(
        "PaddleDetection: rows (n, 6) of class, score and box in the image's pixels, and how many each image has",
        _paddle_parts,
        _paddle,
        image_pixels=True,
        interpolation="opencv-bicubic",
    ),
    "yolov8": Layout(
        "YOLOv8, v9, v11: (1, 4 + classes, places), centres and sides in pixels, a score per class",
        _yolov8_parts,
        _yolov8,
        lambda parts: int(parts["grid"].shape[1]) - 4,
        suppression="per-class",
        least_score=0.001,
        **_YOLO,
    ),
    "yolov5": Layout(
        "YOLOv5, v7: (1, places, 5 + classes), centres and sides in pixels, objectness, a score per class",
        _yolov5_parts,
        _yolov5,
        lambda parts: int(parts["grid"].shape[2]) - 5,
        suppression="per-class",
        iou=0.6,
        least_score=0.001,
        **_YOLO,
    ),
    "yolov10": Layout(
        "YOLOv10 and exports with NMS inside: (1, n, 6), rows of corners in pixels, score and class",
        _yolov10_parts,
        _yolov10,
        least_score=0.001,
        **_YOLO,
    ),
    "detr": Layout(
        "DETR, YOLOS: boxes (1, queries, 4) in shares, logits (1, queries, classes + 1), the last for no object",
        _detr_parts,
        _detr,
        lambda parts: int(parts["logits"].shape[2]) - 1,
    ),
    "rt-detr": Layout(
        "RT-DETR, Deformable DETR: boxes (1, queries, 4) in shares, logits (1, queries, classes), a sigmoid each",
        _detr_parts,
        _rt_detr,
        lambda parts: int(parts["logits"].shape[2]),
    ),
}
LAYOUTS: Registry[str, Layout] = Registry(_SHIPPED, register="holdfast.deploy.detection_layouts.register_layout")


def register_layout(name: str, layout: Layout, line: str = "") -> None:
    """Register a layout of an ONNX detector's outputs, as in ``--outputs NAME``."""
    add_row(LAYOUTS, name, replace(layout, line=line or layout.line), what="layout")
