"""Evaluation of detectors: lists of boxes, classes and masks; images keep their size.

Images go through the model one at a time at their own size: a batch would be padded to its largest image, and padding
changes the output of FAN's global attention. Corruptions act on that size, as in COCO-C (Michaelis et al. 2019).
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor, nn

from holdfast.attacks.criteria import Criterion
from holdfast.data.detection_targets import Objects, recorded_fields, run_lengths
from holdfast.errors import HoldfastError
from holdfast.evaluation.preprocessing import native_resolution
from holdfast.evaluation.tasks.segmentation import check_keeps_size
from holdfast.io.run_lengths import packed_masks
from holdfast.models.torchvision_detectors import ranked_labels
from holdfast.plotting.annotate import draw_boxes
from holdfast.records.detections import FIELDS, ROW
from holdfast.records.shard_files import Field, field_name
from holdfast.tasks.base import Answers, Evaluation, NoCriterion
from holdfast.tasks.examples.base import class_name
from holdfast.tasks.examples.boxes import SCORE

MASK_THRESHOLD = 0.5


class DetectionEvaluation(Evaluation):
    """Objects with box, class and mask; a model outputs lists like torchvision's, see `keep`."""

    needs = "data with objects, such as coco:IMAGES,ANNOTATIONS"
    batched = False
    tensor_outputs = False
    lists_answers = True
    draws_overlays = True

    def truth(self, source: Any) -> np.ndarray:
        """Digest of the objects of every image, int64."""
        return np.array([_digest(source.target(index)) for index in range(len(source))], dtype=np.int64)

    def strata(self, source: Any) -> np.ndarray:
        """All zero, because an image has objects of many classes."""
        return np.zeros(len(source), dtype=np.int64)

    def target(self, source: Any, index: int) -> Objects:
        """Objects of one image."""
        return source.target(index)

    def steps(self, source: Any, wanted: Any, *, preset: str | None, stored_jpeg: bool) -> Any:
        """Preprocessing at native resolution, unnormalised: a detector resizes and normalises images itself."""
        if preset not in (None, "any"):
            raise HoldfastError(f"preset must be 'any' for detection, whose images keep their size, got {preset!r}")
        if stored_jpeg:
            raise HoldfastError("stored_jpeg is a setting of ImageNet-C: omit it for detection")
        unnormalised = replace(wanted, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
        steps = {"protocol": "native size, corrupted in RGB", "after_corruption": "nothing", "model_size": "as it is"}
        return native_resolution(unnormalised, {**steps, **wanted.own_steps})

    def adapt_model(self, model: nn.Module, source: Any) -> nn.Module:
        """Map the labels of a model that outputs COCO's category ids, which have gaps, to class ranks."""
        known = getattr(source, "category_ids", None)  # files without annotations have none
        return model if known is None else ranked_labels(model, known)

    def check_model(self, answers: Answers, *, classes: int, restricted: bool, data: str) -> None:
        """Raise an error unless every view returns a list with the detections of one image."""
        for view, found in answers.items():
            _check_answer(found, images=1, where=f" in view {view!r}" if view else "")

    def keep(
        self, answers: Answers, targets: Sequence[Any], *, cell: Any, repeats: int | None = None
    ) -> dict[str, Field]:
        """Boxes, labels, scores and masks (from probability ½) of every image, with its ground truth; per view.

        The model's output is a list with, for each image, ``boxes`` (x0 y0 x1 y1), ``labels`` from 1,
        ``scores`` and optionally ``masks`` (N, 1, H, W).
        """
        arrays: dict[str, Field] = {}
        for view, found in answers.items():
            _check_answer(found, images=len(targets), where=f" in {cell.name}")
            rows = [
                _fields(one, target, cell=cell.name, classes=len(cell.source.classes))
                for one, target in zip(found, targets, strict=True)
            ]
            for name in FIELDS:
                values = tuple(row[name] for row in rows)
                arrays[field_name(view, name)] = np.stack(values) if name in ROW else values
        return arrays

    def answer(self, output: Mapping[str, Tensor], *, classes: Sequence[str] | None, top: int) -> list[dict[str, Any]]:
        """Detections of one image with the highest scores, for ``holdfast predict``: class, score and box."""
        best = output["scores"].argsort(descending=True)[:top].tolist()
        return [
            {
                "class": class_name(int(output["labels"][row]) - 1, classes or ()),
                "score": float(output["scores"][row]),
                "box": " ".join(f"{corner:.1f}" for corner in output["boxes"][row].tolist()),
            }
            for row in best
        ]

    def overlay(
        self, picture: Image.Image, output: Mapping[str, Tensor], *, classes: Sequence[str] | None
    ) -> Image.Image:
        """Draw boxes, masks and names of detections with a score of ½ or more over the picture."""
        sure = output["scores"] >= SCORE
        boxes, labels = (output[name][sure].cpu().numpy() for name in ("boxes", "labels"))
        masks = output["masks"][sure][:, 0].cpu().numpy() >= MASK_THRESHOLD if "masks" in output else np.zeros(0, bool)
        names = [
            f"{class_name(int(label) - 1, classes or ())}: {100 * score:.0f} %"
            for label, score in zip(labels, output["scores"][sure].tolist(), strict=True)
        ]
        return draw_boxes(picture, (picture.height, picture.width), boxes, labels - 1, masks, names=names)

    def collate(self, targets: Sequence[Any]) -> list[Any]:
        """Targets as a list, because images differ in their number of objects."""
        return list(targets)

    @property
    def goal(self) -> Criterion:
        """A criterion that raises an error, because attacks on detectors are not supported."""
        return NoCriterion("attacks on detectors are not supported: use the suites clean, coco-c and coco-c-fan")

    def check_protocol(self, protocol: Any) -> None:
        """Raise an error for settings of classification and segmentation, and for those of the detector itself."""
        if protocol.window is not None or protocol.stride is not None:
            raise HoldfastError("window and stride are settings of segmentation: omit them for detection")
        check_keeps_size(protocol, "detection")
        own = [name for name in ("size", "mean", "std") if getattr(protocol, name) is not None]
        if own:
            raise HoldfastError(f"{own[0]} does not apply to detectors of torchvision's protocol: omit it")
        if protocol.probabilities:
            raise HoldfastError("probabilities is a setting of classification and segmentation: omit it for detection")


def _digest(objects: Objects) -> int:
    digest = hashlib.blake2b(repr(objects.size).encode(), digest_size=8)
    for array in recorded_fields(objects).values():
        digest.update(np.ascontiguousarray(array).tobytes())
    return int.from_bytes(digest.digest(), "little", signed=True)


def _check_answer(found: Any, *, images: int, where: str) -> None:
    wanted = "a list with boxes, labels and scores for each image, as torchvision's detectors do"
    if not isinstance(found, list | tuple) or len(found) != images:
        given = f"{len(found)} entries" if isinstance(found, list | tuple) else type(found).__name__
        raise HoldfastError(f"the model must return {wanted}{where}, got {given} for {images} images")
    for one in found:
        missing = {"boxes", "labels", "scores"} - set(one) if isinstance(one, Mapping) else {"boxes"}
        if missing:
            raise HoldfastError(f"the model must return {wanted}{where}, but {', '.join(sorted(missing))} is missing")
        if one["boxes"].ndim != 2 or one["boxes"].shape[1] != 4:
            raise HoldfastError(f"boxes must have shape (detections, 4){where}, got {tuple(one['boxes'].shape)}")
        lengths = {name: len(one[name]) for name in ("boxes", "labels", "scores", "masks") if name in one}
        if len(set(lengths.values())) != 1:
            raise HoldfastError(f"boxes, labels, scores and masks must have equal lengths{where}, got {lengths}")


def _fields(found: Mapping[str, Any], target: Objects, *, cell: str, classes: int) -> dict[str, np.ndarray]:
    boxes, scores, labels = (found[name].float().cpu().numpy() for name in ("boxes", "scores", "labels"))
    if not (np.isfinite(boxes).all() and np.isfinite(scores).all()):
        raise HoldfastError(
            f"the model must return finite boxes and scores, got NaN or infinity in {cell}; nothing was recorded"
        )
    if len(labels) and labels.min() < 1:
        raise HoldfastError(f"labels must start at 1 in {cell}, as in torchvision, got {int(labels.min())}")
    if len(labels) and labels.max() > classes:
        raise HoldfastError(f"labels must be at most {classes} in {cell}, one per class, got {int(labels.max())}")
    masks, lengths = packed_masks(_run_lengths(found, target.size, cell=cell))
    own = {
        "size": np.array(target.size),
        "masked": np.array("masks" in found and target.masks is not None),
        "boxes": boxes.reshape(-1, 4),
        "labels": labels - 1,
        "scores": scores,
        "masks": masks,
        "mask_lengths": lengths,
    }
    return {name: np.asarray(value).astype(FIELDS[name]) for name, value in {**own, **recorded_fields(target)}.items()}


def _run_lengths(found: Mapping[str, Any], size: tuple[int, int], *, cell: str) -> Sequence[Any]:
    if "masks" not in found:
        return ()
    masks = found["masks"]
    masks = masks[:, 0] if masks.ndim == 4 else masks
    if masks.ndim != 3 or tuple(masks.shape[1:]) != size:
        raise HoldfastError(f"masks must have the image's size {size[0]}×{size[1]} in {cell}, got {tuple(masks.shape)}")
    return run_lengths((masks >= MASK_THRESHOLD).cpu().numpy())


EVALUATION = DetectionEvaluation()
