"""How an evaluation looks at images, and how it computes: what ``holdfast.evaluate`` takes as two objects."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors import HoldfastError
from holdfast.io.images import check_exif
from holdfast.runtime.ray import Cluster

MODEL, BENCHMARK = PREPARATIONS = ("model", "benchmark")


@dataclass(frozen=True)
class EvalProtocol:
    """What happens to images before the model answers; records name it, and are kept apart by it.

    Attributes:
        preset: ``imagenet``, ``cifar``, ``tiny``, ``inception``, ``any``; chosen by the images unless given.
        size: height and width the model wants; from its timm configuration unless given.
        mean: subtracted from [0,1] pixels; likewise. A module without configuration gets the pixels themselves.
        std: divides them then.
        pixel_range: 255 if ``mean`` and ``std`` are of pixels from 0 to 255, or the model takes these.
        interpolation: of the resize to ``size``; the model's own unless given.
        crop_pct: share of the resized image that the centre crop keeps; the model's own unless given. Images are not
            cropped by it after an ImageNet-C corruption.
        preparation: ``model`` prepares images that are not corrupted as the model's configuration says (``crop_pct``,
            ``interpolation``, ``crop_mode``); ``benchmark`` prepares all images as the corruption benchmark does, and
            brings them to ``size`` whole, as the shipped studies do.
        window: height and width of sliding windows, for models of label maps; the model's own unless given.
        stride: pixels from one window to the next; three quarters of the window unless given.
        extra: with the four extra corruptions, or perturbations.
        stored_jpeg: pass corrupted images through a JPEG of quality 85, as the stored ImageNet-C was.
        exif: ``ignore`` rotations that EXIF data of a folder's images ask for, or ``apply`` them.
        probabilities: whether the model answers with probabilities instead of logits; must be said where its answers
            look like them.
        classes_differ: measure a run also on data whose classes have other names than those it was trained on.
        outputs: what an ONNX detector returns: ``torchvision``, ``paddle``, ``yolov8``, ``yolov5``, ``yolov10``,
            ``detr`` or ``rt-detr``; or an ONNX segmenter: ``logits`` or ``labels``. Recognised unless given.
        resize: how images are brought to the size of an ONNX detector or segmenter: ``stretch``, ``letterbox`` or
            ``none``; as its layout does it unless given.
        nms: non-maximum suppression after an ONNX detector: ``per-class``, ``agnostic`` or ``none``; likewise.
        nms_iou: overlap from which on a box is suppressed; likewise.
        score_threshold: detections of lower scores are not kept; likewise, at most 0.001.
        class_ids: whether an ONNX detector numbers classes by ``ranks`` or by ``category-ids``; by how many it has
            unless given.
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
    outputs: str | None = None
    resize: str | None = None
    nms: str | None = None
    nms_iou: float | None = None
    score_threshold: float | None = None
    class_ids: str | None = None

    def __post_init__(self) -> None:
        check_exif(self.exif)
        if self.pixel_range not in (1, 255):
            raise HoldfastError(f"pixel_range must be 1 or 255, got {self.pixel_range}")
        if self.preparation not in PREPARATIONS:
            raise HoldfastError(f"preparation must be one of {', '.join(PREPARATIONS)}, got {self.preparation!r}")
        if self.crop_pct is not None and not 0 < self.crop_pct <= 1:
            raise HoldfastError(f"crop_pct must be above 0 and at most 1, got {self.crop_pct}")


@dataclass(frozen=True)
class ComputeConfig:
    """How many images are worked on together, in which precision, and what is kept to be looked at.

    Attributes:
        batch_size: images per forward pass; does not change results, but of models with int8 layers, whose records name
            it.
        attack_batch_size: images that are attacked together; attacks are exact for a fixed one.
        shard_size: images per unit of work; None for 256, or fewer where they are large.
        amp: run the model in half precision (bfloat16 where there is, else float16); attacks stay in single.
        keep_examples: store thumbnails of so many failures beside the records, for the report. They are copies of the
            data: mind its licence before you pass them on.
        cluster: where the units are measured; None for this process, or those that torchrun started.
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
