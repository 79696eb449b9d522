"""Detection and instance segmentation: boxes, classes and masks of the objects in an image, scored by COCO's AP.

Images go through the model one at a time at their own size: a batch would be padded to its largest image, and padding
changes the output of FAN's global attention. Corruptions act on that size, as in COCO-C (Michaelis et al. 2019).
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from holdfast.data.detection_targets import Objects, recorded_fields, run_lengths
from holdfast.errors import HoldfastError
from holdfast.metrics.ap_jackknife import cell_replicates
from holdfast.metrics.average_precision import match_image, record_scores
from holdfast.metrics.detection_errors import breakage
from holdfast.metrics.jackknife import Groups
from holdfast.metrics.scoring.base import CellScore, Key, Reference, ScoreDefinition
from holdfast.metrics.scoring.detection import BOX, MASK, cell_ap, detection_formulas
from holdfast.records.cells import CellSpec
from holdfast.records.detections import FIELDS, ROW, packed_masks
from holdfast.records.records import CellRecord
from holdfast.records.shard_files import Field, field_name
from holdfast.tasks.base import Answers
from holdfast.tasks.examples.base import Examples, class_name
from holdfast.tasks.examples.boxes import SCORE, BoxExamples, draw_boxes

if TYPE_CHECKING:  # torch only where tensors are at hand: reports read records without it
    from PIL import Image
    from torch import Tensor, nn

    from holdfast.attacks.criteria import Criterion

DETECTION = "detection"
MASK_THRESHOLD = 0.5
FEW_OBJECTS = 10  # of a class; with fewer, AP is biased upwards and its interval unreliable
_KEYS = {"bbox": BOX, "segm": MASK}


class NoCriterion:
    """Criterion of detectors, which have no attacks: every use raises an error."""

    losses: Mapping[str, Any] = MappingProxyType({})

    def check(self, output: Any, targets: Any) -> None:
        """Raise an error, because detectors have no attacks."""
        raise HoldfastError("attacks on detectors are not supported: use the suites clean, coco-c and coco-c-fan")

    def predicted(self, output: Any) -> Any:
        """The detections as they are."""
        return output

    def right(self, output: Any, targets: Any) -> "Tensor":
        """Raise an error, because detectors have no attacks."""
        self.check(output, targets)
        raise AssertionError


class Detection:
    """Detection: objects with box, class and mask; a model outputs lists like torchvision's, see :meth:`keep`."""

    name = DETECTION
    batched = False
    fields: Mapping[str, Any] = FIELDS
    per_image = "F1 of the detections (score and IoU from ½), mean over the images, percent"  # in reports
    cell_words = "box AP"
    headline = ("clean", "mpc", "rpc", "mpc_fan", "rpc_fan", "mask_clean", "mask_mpc", "mask_rpc")
    examples: Examples = BoxExamples()

    def __init__(self) -> None:
        self._replicates: WeakKeyDictionary[CellRecord, dict[bytes, dict[str, np.ndarray]]] = WeakKeyDictionary()

    # data

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
        from holdfast.evaluation.preprocessing import native_resolution

        if preset not in (None, "any"):
            raise HoldfastError(f"preset must be 'any' for detection, whose images keep their size, got {preset!r}")
        if stored_jpeg:
            raise HoldfastError("stored_jpeg is a setting of ImageNet-C: omit it for detection")
        unnormalised = replace(wanted, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
        steps = {"protocol": "native size, corrupted in RGB", "after_corruption": "nothing", "model_size": "as it is"}
        return native_resolution(unnormalised, {**steps, **wanted.own_steps})

    def adapt_model(self, model: "nn.Module", source: Any) -> "nn.Module":
        """Map the labels of a model that outputs COCO's category ids, which have gaps, to class ranks."""
        from holdfast.models.torchvision_detectors import ranked_labels

        known = getattr(source, "category_ids", None)  # files without annotations have none
        return model if known is None else ranked_labels(model, known)

    # outputs of a model

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

    def answer(
        self, output: Mapping[str, "Tensor"], *, classes: Sequence[str] | None, top: int
    ) -> list[dict[str, Any]]:
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
        self, picture: "Image.Image", output: Mapping[str, "Tensor"], *, classes: Sequence[str] | None
    ) -> "Image.Image":
        """Draw boxes, masks and names of detections with a score of ½ or more over the picture."""
        sure = output["scores"] >= SCORE
        boxes, labels = (output[name][sure].cpu().numpy() for name in ("boxes", "labels"))
        masks = output["masks"][sure][:, 0].cpu().numpy() >= MASK_THRESHOLD if "masks" in output else np.zeros(0, bool)
        names = [
            f"{class_name(int(label) - 1, classes or ())}: {100 * score:.0f} %"
            for label, score in zip(labels, output["scores"][sure].tolist(), strict=True)
        ]
        return draw_boxes(picture, (picture.height, picture.width), boxes, labels - 1, masks, names=names)

    @property
    def goal(self) -> "Criterion":
        """A criterion that raises an error, because attacks on detectors are not supported."""
        return NoCriterion()

    # training

    def collate(self, targets: Sequence[Any]) -> list[Any]:
        """Targets as a list, because images differ in their number of objects."""
        return list(targets)

    def loss(self, output: Mapping[str, "Tensor"], targets: Any) -> "Tensor":
        """Raise an error: detectors compute their own losses, for the objective ``detection``."""
        raise HoldfastError("objective.name must be detection for data with objects")

    def tally(self, output: Sequence[Mapping[str, "Tensor"]] | None, targets: Sequence[Any] | None) -> "Tensor":
        """Number of objects found (score and IoU from ½), detections and objects, (3,)."""
        import torch

        counts = torch.zeros(3, dtype=torch.int64)
        for found, target in zip(output or (), targets or (), strict=True):
            counts += torch.tensor(match_image(_single(found, target), 0))
        return counts

    def validation_scores(self, counts: "Tensor") -> dict[str, float]:
        """F1 of all objects in percent; ``holdfast evaluate`` computes the average precision."""
        found, detections, objects = counts.tolist()
        return {"f1": 200 * found / max(detections + objects, 1)}

    def build(self, recipe: Any, *, classes: int, size: Any) -> "nn.Module":
        """Build a ``detector`` with the encoder and settings of the recipe's ``model.kwargs``."""
        from holdfast.models.detector import Detector
        from holdfast.training.initialize import start_model

        if size is not None:
            raise HoldfastError(f"data.size must be null for detection, see min_size of the detector, got {size}")
        model = start_model(recipe, classes=classes, size=None)
        if not isinstance(model, Detector):
            raise HoldfastError(f"model.name must be detector for data with objects, got {recipe.name!r}")
        return model

    def transforms(self, recipe: Any, image: Any) -> tuple[Any, Any]:
        """Joint flips and crops of image and objects; the detector itself chooses the size."""
        from holdfast.training.augment.detection import as_tensors, object_transform

        of_classification = ("mixup", "cutmix", "erasing", "rand_augment", "color_jitter", "vflip", "smoothing")
        for name in of_classification:
            if getattr(recipe, name):
                raise HoldfastError(
                    f"augment.{name} is a setting of classification: omit it for detection, got {getattr(recipe, name)}"
                )
        return object_transform(recipe), as_tensors

    def shown_size(self, recipe: Any, image: Any, model: "nn.Module") -> tuple[int, int] | None:
        """Fixed input size of the detector, if it has one."""
        settings = getattr(model, "settings", None)
        return getattr(settings, "fixed_size", None)

    def mixer(self, recipe: Any, *, classes: int) -> Any:
        """Identity, because batches of images with boxes are not mixed."""
        return lambda images, targets, epoch: (images, targets)

    # scores from records

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

    def remark(self, cell: CellRecord) -> str:
        """An empty note, because detectors have no attacks."""
        return ""

    def columns(self, cell: CellRecord) -> dict[str, np.ndarray]:
        """Nothing: AP is not a mean over images, see :meth:`replicates`."""
        return {}

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


def _single(found: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, Any]:
    """Detections and training target of one image, in the form that :func:`match_image` takes."""
    count = len(target["boxes"])
    return {
        **{name: (found[name].float().cpu().numpy(),) for name in ("boxes", "labels", "scores")},
        "true_boxes": (target["boxes"].cpu().numpy(),),
        "true_labels": (target["labels"].cpu().numpy(),),
        "true_crowds": (np.zeros(count, np.uint8),),
    }


TASK = Detection()
