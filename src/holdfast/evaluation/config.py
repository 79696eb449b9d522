"""``EvalProtocol`` and ``ComputeConfig``: preprocessing and computation settings of ``holdfast.evaluate``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.io.images import check_exif
from holdfast.io.validation import parse_size
from holdfast.runtime.ray import Cluster

MODEL, BENCHMARK = PREPARATIONS = ("model", "benchmark")
NAMED_ELSEWHERE = ("extra", "stored_jpeg", "preparation", "class_map", "classes")  # by other keys of a header


@dataclass(frozen=True)
class EvalProtocol:
    """Preprocessing of an evaluation. Records name it, and records with different protocols are kept apart.

    Attributes:
        preset: ``imagenet``, ``cifar``, ``tiny``, ``inception``, ``any``; by default chosen from the images' size.
        size: height and width of the model's input, as 448, (1024, 2048) or "1024x2048"; by default from its timm
            configuration.
        mean: per-channel mean of [0,1] pixels; likewise. A module without configuration gets unnormalised pixels.
        std: per-channel standard deviation of [0,1] pixels; likewise.
        pixel_range: 255 if ``mean`` and ``std`` refer to pixels from 0 to 255, or the model takes such pixels.
        interpolation: interpolation of the resize to ``size``; by default the model's own.
        crop_pct: fraction of the resized image that the centre crop keeps; by default the model's own. It is not
            applied after an ImageNet-C corruption.
        preparation: ``model`` preprocesses uncorrupted images as the model's configuration says (``crop_pct``,
            ``interpolation``, ``crop_mode``); ``benchmark`` preprocesses all images as the corruption benchmark does
            and resizes them to ``size`` without a crop, as the shipped studies do.
        window: height and width of the sliding window of segmenters; by default the model's own.
        stride: stride of the sliding window in pixels; by default three quarters of the window.
        extra: include the four extra corruptions, or perturbations.
        stored_jpeg: pass corrupted images through a JPEG of quality 85, as the stored ImageNet-C was.
        exif: ``ignore`` or ``apply`` the rotation in the EXIF data of an image folder's files.
        probabilities: whether the model outputs probabilities instead of logits; required if its outputs look like
            probabilities.
        classes_differ: evaluate a run on data whose class names differ from those it was trained on.
        class_map: outputs of the model that are the classes of the data: a YAML or CSV file, ``imagenet-16`` or
            ``objectnet``, or a mapping from classes to outputs.
        classes: ``restricted`` to the classes of the data, or ``all`` of the model's; by default restricted for class
            maps and wnid folders, all for folders that the model's class names or indices name.
        outputs: output layout of an ONNX detector (``torchvision``, ``paddle``, ``yolov8``, ``yolov5``, ``yolov10``,
            ``detr``, ``rt-detr``) or segmenter (``logits``, ``labels``); recognised by default.
        resize: how images are brought to the size of an ONNX detector or segmenter: ``stretch``, ``letterbox`` or
            ``none``; by default as its layout does.
        nms: non-maximum suppression after an ONNX detector: ``per-class``, ``agnostic`` or ``none``; likewise.
        nms_iou: IoU threshold of the suppression; likewise.
        score_threshold: lowest score of a detection; likewise, at most 0.001.
        class_ids: whether an ONNX detector numbers classes by ``ranks`` or ``category-ids``; by default inferred from
            their number.
    """

    preset: str | None = None
    size: int | tuple[int, int] | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    pixel_range: int = 1
    interpolation: str | None = None
    crop_pct: float | None = None
    preparation: str = MODEL
    window: int | tuple[int, int] | None = None
    stride: int | None = None
    extra: bool = False
    stored_jpeg: bool = False
    exif: str = "ignore"
    probabilities: bool | None = None
    classes_differ: bool = False
    class_map: str | Path | Mapping[str, Any] | None = None
    classes: str | None = None
    outputs: str | None = None
    resize: str | None = None
    nms: str | None = None
    nms_iou: float | None = None
    score_threshold: float | None = None
    class_ids: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", parse_size(self.size))
        check_exif(self.exif)
        if self.pixel_range not in (1, 255):
            raise HoldfastError(f"pixel_range must be 1 or 255, got {self.pixel_range}")
        if self.preparation not in PREPARATIONS:
            raise HoldfastError(f"preparation must be one of {', '.join(PREPARATIONS)}, got {self.preparation!r}")
        if self.classes not in (None, "restricted", "all"):
            raise HoldfastError(f"classes must be restricted or all, got {self.classes!r}")
        if self.crop_pct is not None and not 0 < self.crop_pct <= 1:
            raise HoldfastError(f"crop_pct must be above 0 and at most 1, got {self.crop_pct}")

    def given(self) -> dict[str, Any]:
        """Settings that differ from their defaults and that nothing else in a record set's header names."""
        chosen = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in NAMED_ELSEWHERE}
        defaults = {each.name: each.default for each in fields(self)}
        plain = {
            name: list(map(float, value)) if name in ("mean", "std") else value
            for name, value in chosen.items()
            if value is not None
        }
        return {name: value for name, value in plain.items() if value != defaults[name]}


@dataclass(frozen=True)
class ComputeConfig:
    """Batch sizes, precision, stored examples and cluster of an evaluation.

    Attributes:
        batch_size: images per forward pass; changes results only of models with int8 layers, whose records name
            it.
        attack_batch_size: images per attack batch; attacks are reproducible for a fixed value.
        shard_size: images per unit of work; None for 256, or fewer if the images are large.
        amp: run the model in half precision (bfloat16 where available, else float16); attacks stay in float32.
        keep_examples: number of failures stored as thumbnails beside the records, for the report. They are copies of
            the data: check its licence before sharing them.
        cluster: Ray cluster that measures the units; None for this process, or those that torchrun started.
    """

    batch_size: int = 64
    attack_batch_size: int = 64
    shard_size: int | None = None
    amp: bool = False
    keep_examples: int = 0
    cluster: Cluster | None = None

    def __post_init__(self) -> None:
        for name in ("batch_size", "attack_batch_size", "shard_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise HoldfastError(f"{name} must be at least 1, got {value}")
        if self.keep_examples < 0:
            raise HoldfastError(f"keep_examples must be 0 or more, got {self.keep_examples}")
