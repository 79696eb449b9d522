"""Semantic segmentation: a class per pixel. Records hold pixel counts, from which all scores are computed."""

import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.metrics.calibration import pixel_calibration
from holdfast.metrics.iou import (
    KINDS,
    band_counts,
    boundary_counts,
    class_iou,
    mean_iou,
    pixel_accuracy,
    pixel_counts,
)
from holdfast.metrics.jackknife import grouping_of, groups_of
from holdfast.metrics.scoring.base import CellScore, Key, Reference, ScoreDefinition
from holdfast.metrics.scoring.segmentation import cell_miou, count_columns, segmentation_formulas
from holdfast.records.cells import CellSpec
from holdfast.records.records import CellRecord
from holdfast.records.shard_files import Field, field_name
from holdfast.tasks.base import Answers, RunningScore
from holdfast.tasks.examples.base import Examples, class_name
from holdfast.tasks.examples.label_maps import MapExamples, over

if TYPE_CHECKING:  # torch only where tensors are at hand: reports read records without it
    from PIL import Image
    from torch import Tensor, nn

    from holdfast.attacks.criteria import Criterion

SEGMENTATION = "segmentation"
IGNORED = 255


class Segmentation:
    """Segmentation: a class per pixel; a model outputs logits (images, classes, height, width)."""

    name = SEGMENTATION
    batched = False
    fields: Mapping[str, Any] = {
        "counts": np.int32,
        "bands": np.int32,
        "boundary": np.int32,
        "calibration": np.float32,
    }
    cell_words = "mIoU"
    per_image = "Percent of the labelled pixels that are right, mean over the images"
    headline = ("clean", "mean_corruption_miou", "retention", "cityscapes_c", "cityscapes_c_retention")
    examples: Examples = MapExamples()
    running = RunningScore("mIoU", lambda cell: cell.counts.sum(axis=0, dtype=np.int64), mean_iou)

    def corruption_kinds(self, extra: bool) -> tuple[str, ...]:
        """The 16 kinds of Cityscapes-C, without those that would move pixels away from their labels."""
        return KINDS

    # data

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
        from holdfast.evaluation.preprocessing import native_resolution

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

    # outputs of a model

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
        from holdfast.models.sliding_window import predicted_map_and_confidence

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
                arrays[field_name(view, name)] = np.stack(values).astype(self.fields[name])
        return arrays

    def answer(self, output: "Tensor", *, classes: Sequence[str] | None, top: int) -> list[dict[str, Any]]:
        """Classes that cover most of one image, for ``holdfast predict``: area fraction and mean confidence."""
        from holdfast.models.sliding_window import predicted_map_and_confidence

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

    def overlay(self, picture: "Image.Image", output: "Tensor", *, classes: Sequence[str] | None) -> "Image.Image":
        """Draw the predicted label map over the picture."""
        from holdfast.models.sliding_window import predicted_map

        return over(picture, predicted_map(output, (picture.height, picture.width), cell="this image"))

    @property
    def goal(self) -> "Criterion":
        """Misclassification of every pixel, by pixel-wise cross-entropy."""
        from holdfast.attacks.segpgd import PIXEL_MISCLASSIFICATION

        return PIXEL_MISCLASSIFICATION

    # training

    def collate(self, targets: Sequence[Any]) -> "Tensor":
        """Label maps of a batch, int64 (B, H, W)."""
        import torch

        maps = [torch.as_tensor(np.asarray(target)).long() for target in targets]
        return torch.stack(maps) if maps else torch.empty(0, dtype=torch.int64)

    def loss(self, output: "Tensor", targets: "Tensor") -> "Tensor":
        """Cross-entropy, averaged over the labelled pixels."""
        from holdfast.methods.segmentation_loss import pixel_cross_entropy

        return pixel_cross_entropy(output, targets)

    def tally(self, output: Any, targets: Any) -> "Tensor":
        """Pixel counts per class: true, predicted and both, (3, 256)."""
        import torch

        if output is None:
            return torch.zeros(3, IGNORED + 1, dtype=torch.int64)
        labelled = targets != IGNORED
        seen, known = output.argmax(dim=1)[labelled], targets[labelled]
        counted = [torch.bincount(values, minlength=IGNORED + 1) for values in (known, seen, known[seen == known])]
        return torch.stack(counted)

    def validation_scores(self, counts: "Tensor") -> dict[str, float]:
        """mIoU and pixel accuracy in percent."""
        pooled = counts.cpu().numpy()
        scores = {"miou": float(mean_iou(pooled)), "pixel_accuracy": float(pixel_accuracy(pooled))}
        return {name: 100 * (0.0 if np.isnan(value) else value) for name, value in scores.items()}

    def build(self, recipe: Any, *, classes: int, size: Any) -> "nn.Module":
        """Build a segmenter, its encoder with random, pretrained or a classifier's weights."""
        from holdfast.training.initialize import start_segmenter

        return start_segmenter(recipe, classes=classes)

    def transforms(self, recipe: Any, image: Any) -> tuple[Any, Any]:
        """Joint transforms of image and label map."""
        from holdfast.training.augment.segmentation import pair_transforms

        return pair_transforms(recipe, image)

    def shown_size(self, recipe: Any, image: Any, model: "nn.Module") -> tuple[int, int]:
        """Height and width of the training crops."""
        height, width = (recipe.joint or {}).get("crop", (image.size, image.size))
        return int(height), int(width)

    def mixer(self, recipe: Any, *, classes: int) -> Any:
        """Identity, because batches of label maps are not mixed."""
        return lambda images, targets, epoch: (images, targets)

    # scores from records

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


TASK = Segmentation()
