"""Evaluation of segmenters: logits per pixel; records hold pixel counts."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from holdfast.attacks.criteria import Criterion
from holdfast.attacks.segpgd import PIXEL_MISCLASSIFICATION
from holdfast.errors import HoldfastError
from holdfast.evaluation.preprocessing import native_resolution
from holdfast.metrics.calibration import pixel_calibration
from holdfast.metrics.iou import IGNORED, KINDS, band_counts, boundary_counts, pixel_counts
from holdfast.metrics.jackknife import grouping_of, groups_of
from holdfast.metrics.scoring.segmentation import SCORING
from holdfast.models.sliding_window import predicted_map, predicted_map_and_confidence
from holdfast.plotting.annotate import label_map_over
from holdfast.records.shard_files import Field, field_name
from holdfast.tasks.base import Answers, Evaluation
from holdfast.tasks.examples.base import class_name


class SegmentationEvaluation(Evaluation):
    """A class per pixel; images go through the model one at a time, at their own size."""

    standard_attack = "segpgd5"
    needs = "label maps, such as cityscapes:DIR or scenes"
    batched = False
    label_maps = True
    lists_answers = True
    draws_overlays = True

    def corruption_kinds(self, extra: bool) -> tuple[str, ...]:
        """The 16 kinds of Cityscapes-C, without those that would move pixels away from their labels."""
        return KINDS

    def truth(self, source: Any) -> np.ndarray:
        """Checksum of every label map, int64."""
        digest = getattr(source, "label_digest", None)
        return np.array(
            [digest(i) if digest is not None else zlib.crc32(source.target(i).tobytes()) for i in range(len(source))],
            dtype=np.int64,
        )

    def strata(self, source: Any) -> np.ndarray:
        """Recording, city or condition of every image, if ids show it."""
        ids = [source.id(index) for index in range(len(source))]
        grouping = grouping_of(ids)
        if grouping is None:
            return np.zeros(len(source), np.int64)
        return np.unique(groups_of(ids, grouping), return_inverse=True)[1].astype(np.int64)

    def target(self, source: Any, index: int) -> np.ndarray:
        """The label map of one image, uint8 (H, W)."""
        return source.target(index)

    def steps(self, source: Any, wanted: Any, *, preset: str | None, stored_jpeg: bool) -> Any:
        """Preprocessing at native resolution."""
        if stored_jpeg:
            raise HoldfastError("stored_jpeg is a setting of ImageNet-C: omit it for segmentation")
        box = getattr(source, "box", None)
        fitted = f"fitted into {box[0]}×{box[1]}, bilinear; logits resampled back" if box else "as it is"
        inference = "whole images, one at a time"
        if wanted.window:
            inference = f"windows of {wanted.window[0]}×{wanted.window[1]}, stride {wanted.stride}, mean logits"
        described = {
            "protocol": "the image as it is stored",
            "after_corruption": "nothing",
            "model_size": fitted,
            "inference": inference,
            "mean": list(wanted.mean),
            "std": list(wanted.std),
            **wanted.own_steps,
        }
        return native_resolution(wanted, described, preset=preset or "any", box=box)

    def check_model(self, answers: Answers, *, classes: int, restricted: bool, data: str) -> None:
        """Raise an error unless every view returns logits per pixel of the data's classes."""
        for view, logits in answers.items():
            where = f" in view {view!r}" if view else ""
            if not hasattr(logits, "shape") or logits.ndim != 4:
                given = tuple(logits.shape) if hasattr(logits, "shape") else type(logits).__name__
                raise HoldfastError(
                    f"the model must return logits per pixel, (images, classes, height, width), for the label "
                    f"maps of {data!r}, got {given}{where}; a classifier cannot segment"
                )
            if logits.shape[1] != classes:
                raise HoldfastError(
                    f"the model must have the {classes} classes of {data!r}, got {logits.shape[1]}{where}"
                )

    def keep(
        self, answers: Answers, targets: Sequence[Any], *, cell: Any, repeats: int | None = None
    ) -> dict[str, Field]:
        """Pixel counts per class (true, predicted, both): all, by boundary distance, and near contours; per view.

        Also the counts by confidence, for the calibration error.
        """
        if repeats is not None:
            raise HoldfastError(
                f"{cell.name} predicts every image several times, which segmentation does not support: omit it"
            )
        arrays: dict[str, Field] = {}
        labels = [np.asarray(target) for target in targets]  # the loader turns arrays into tensors
        for view, logits in answers.items():
            predictions = [
                predicted_map_and_confidence(one, true.shape, cell=cell.name)
                for one, true in zip(logits, labels, strict=True)
            ]
            pairs = [(seen, true) for (seen, _), true in zip(predictions, labels, strict=True)]
            classes = logits.shape[1]
            kept = {
                "counts": [pixel_counts(seen, true, classes=classes) for seen, true in pairs],
                "bands": [band_counts(seen, true, classes=classes) for seen, true in pairs],
                "boundary": [boundary_counts(seen, true, classes=classes) for seen, true in pairs],
                "calibration": [
                    pixel_calibration(sure[true != IGNORED], (seen == true)[true != IGNORED])
                    for (seen, sure), true in zip(predictions, labels, strict=True)
                ],
            }
            for name, values in kept.items():
                arrays[field_name(view, name)] = np.stack(values).astype(SCORING.fields[name])
        return arrays

    def answer(self, output: Tensor, *, classes: Sequence[str] | None, top: int) -> list[dict[str, Any]]:
        """Classes that cover most of one image, for ``holdfast predict``: area fraction and mean confidence."""
        seen, sure = predicted_map_and_confidence(output, tuple(output.shape[-2:]), cell="this image")
        numbers, counts = np.unique(seen, return_counts=True)
        best = np.argsort(-counts, kind="stable")[:top]
        return [
            {
                "class": class_name(int(numbers[place]), classes or ()),
                "share": float(counts[place] / seen.size),
                "confidence": float(sure[seen == numbers[place]].mean()),
            }
            for place in best
        ]

    def overlay(self, picture: Image.Image, output: Tensor, *, classes: Sequence[str] | None) -> Image.Image:
        """Draw the predicted label map over the picture."""
        return label_map_over(picture, predicted_map(output, (picture.height, picture.width), cell="this image"))

    @property
    def goal(self) -> Criterion:
        """Misclassification of every pixel, by pixel-wise cross-entropy."""
        return PIXEL_MISCLASSIFICATION

    def collate(self, targets: Sequence[Any]) -> Tensor:
        """Label maps of a batch, int64 (B, H, W)."""
        maps = [torch.as_tensor(np.asarray(target)).long() for target in targets]
        return torch.stack(maps) if maps else torch.empty(0, dtype=torch.int64)

    def check_protocol(self, protocol: Any) -> None:
        """Raise an error for settings of a crop and a resize."""
        check_keeps_size(protocol, "segmentation")


def check_keeps_size(protocol: Any, task: str) -> None:
    """Raise an error for settings of classification, in a task whose images keep their size."""
    if protocol.crop_pct is not None or protocol.interpolation is not None:
        raise HoldfastError(
            f"crop_pct and interpolation are settings of classification: omit them, because {task} keeps images' size"
        )


EVALUATION = SegmentationEvaluation()
