"""Segmenters and detectors of Hugging Face's transformers, by their own processors and post-processing.

An image is corrupted at its own size; then the model's own processor prepares it, and its own post-processing brings
boxes back to the image's pixels. An attack needs a gradient, which a processor of bytes does not have: where one is
asked for, the image is resized and normalised in floating point instead.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from holdfast.deploy.class_numbers import CLASS_IDS, ClassNumbers, class_numbers
from holdfast.deploy.image_fitting import check_choice
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.evaluation.config import EvalProtocol

# what ends the name of an architecture, and the class of transformers that loads it
DETECTION, SEMANTIC, UNIVERSAL = "ForObjectDetection", "ForSemanticSegmentation", "ForUniversalSegmentation"
_NAMED = {"DetrForSegmentation": None, "Mask2Former": UNIVERSAL, "MaskFormer": UNIVERSAL, "Yolos": DETECTION}
NOT_EXPORTABLE = (
    "its processor prepares images outside of the network; export the network by torch.onnx or Optimum and measure "
    "that file as onnx:FILE"
)
LEAST = 1e-12  # of a share whose logarithm is taken


class HuggingFaceDetector(nn.Module):
    """A detector of transformers as torchvision's: [0,1] images (n, 3, H, W) in, a dictionary for each out."""

    task = "detection"
    not_exportable = NOT_EXPORTABLE
    consumes = ("score_threshold", "class_ids")

    def __init__(self, model: nn.Module, processor: Any, *, least_score: float = 0.0) -> None:
        super().__init__()
        self.model, self.processor, self.least_score = model, processor, least_score
        self.processor_settings = processor.to_json_string()  # so that records of another processor are kept apart
        self.numbers = ClassNumbers()
        self.class_ids: str | None = None
        config: Any = model.config
        self.classes_of_model = int(config.num_labels)

    @property
    def own_steps(self) -> dict[str, Any]:
        """What the detector itself does with an image and its outputs, for records."""
        ids: dict[str, Any] = {"class_ids": self.class_ids} if self.class_ids is not None else {}
        return {"model_size": processor_words(self.processor), "score_threshold": self.least_score, **ids}

    def configured(self, protocol: "EvalProtocol", pictures: Any) -> "HuggingFaceDetector":
        """The detector as a protocol asks it about some pictures."""
        _check_unasked(protocol)
        if protocol.class_ids is not None:
            check_choice("class_ids", protocol.class_ids, tuple(CLASS_IDS))
        made = HuggingFaceDetector(self.model, self.processor, least_score=protocol.score_threshold or self.least_score)
        ids: Sequence[int] | None = getattr(pictures, "category_ids", None)
        if ids is not None:
            asked = protocol.class_ids or self.class_ids
            made.numbers = class_numbers(ids, known=self.classes_of_model, first=0, asked=asked)
            made.class_ids = "ranks" if made.numbers.ids is None else "category-ids"
        return made

    def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
        """Boxes in the image's pixels, labels from 1 and scores, image by image: a batch would be padded."""
        return [self._found(image) for image in images]

    def _found(self, image: Tensor) -> dict[str, Tensor]:
        outputs = self.model(**prepared(self.processor, image))
        size = [(image.shape[-2], image.shape[-1])]
        post = self.processor.post_process_object_detection
        (found,) = post(outputs, threshold=self.least_score, target_sizes=size)
        labels, known = self.numbers.labels(found["labels"].cpu())
        known = known.to(image.device)
        return {
            "boxes": found["boxes"][known],
            "labels": labels.to(image.device)[known],
            "scores": found["scores"][known],
        }


class HuggingFaceSegmenter(nn.Module):
    """A segmenter of transformers: [0,1] images (n, 3, H, W) in, logits (n, classes, H, W) out."""

    task = "segmentation"
    not_exportable = NOT_EXPORTABLE
    consumes = ()

    def __init__(self, model: nn.Module, processor: Any, configuration: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.processor, self.pretrained_cfg = model, processor, configuration
        self.processor_settings = processor.to_json_string()  # so that records of another processor are kept apart
        self.num_classes = int(configuration["num_classes"])

    @property
    def own_steps(self) -> dict[str, Any]:
        """What the segmenter itself does with an image, for records."""
        return {"model_size": f"{processor_words(self.processor)}; logits resampled back"}

    def configured(self, protocol: "EvalProtocol", pictures: Any) -> "HuggingFaceSegmenter":
        """The segmenter itself: its processor says everything."""
        _check_unasked(protocol)
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Logits at the images' size, image by image."""
        return torch.cat([self._logits(image) for image in images])

    def _logits(self, image: Tensor) -> Tensor:
        differentiable = torch.is_grad_enabled() and image.requires_grad
        inputs = prepared_floats(self.processor, image) if differentiable else prepared(self.processor, image)
        outputs = self.model(**inputs)
        size = (image.shape[-2], image.shape[-1])
        if hasattr(outputs, "masks_queries_logits"):
            return semantic_logits(outputs.class_queries_logits, outputs.masks_queries_logits, size, self._grid(inputs))
        return interpolate(outputs.logits, size=size, mode="bilinear", align_corners=False)

    def _grid(self, inputs: dict[str, Tensor]) -> tuple[int, int] | None:
        """Mask2Former's post-processing brings its masks to 384×384 first, MaskFormer's does not."""
        return (384, 384) if "Mask2Former" in type(self.model).__name__ else None


def _check_unasked(protocol: "EvalProtocol") -> None:
    """Refuse what a processor says itself."""
    for name in ("size", "mean", "std", "interpolation"):
        if getattr(protocol, name) is not None:
            raise HoldfastError(f"{name} of an hf: model is set by its own processor: omit it")


def semantic_logits(classes: Tensor, masks: Tensor, size: tuple[int, int], grid: tuple[int, int] | None) -> Tensor:
    """Scores of every class and pixel from queries, as transformers' post-processing adds them up, as logarithms."""
    if grid is not None:
        masks = interpolate(masks, size=grid, mode="bilinear", align_corners=False)
    scores = torch.einsum("bqc,bqhw->bchw", classes.softmax(-1)[..., :-1], masks.sigmoid())
    scores = interpolate(scores, size=size, mode="bilinear", align_corners=False)
    return (scores / scores.sum(1, keepdim=True).clamp_min(LEAST)).clamp_min(LEAST).log()


def prepared(processor: Any, image: Tensor) -> dict[str, Tensor]:
    """What the model's own processor makes of an image of [0,1] pixels, given to it as bytes."""
    pixels = (image.detach() * 255).round_().clamp_(0, 255).to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    made = processor(images=np.ascontiguousarray(pixels), return_tensors="pt", input_data_format="channels_last")
    return {name: made[name].to(image.device) for name in ("pixel_values", "pixel_mask") if name in made}


def prepared_floats(processor: Any, image: Tensor) -> dict[str, Tensor]:
    """The same with a gradient: resized to the processor's size and normalised, without rounding to bytes."""
    shapes = {name: values.shape for name, values in prepared(processor, image).items()}
    size = (shapes["pixel_values"][-2], shapes["pixel_values"][-1])
    mode = {2: "bilinear", 3: "bicubic"}.get(int(getattr(processor, "resample", 2) or 2), "bilinear")
    seen = image[None] if image.shape[-2:] == size else interpolate(image[None], size=size, mode=mode, antialias=True)
    if getattr(processor, "do_rescale", True):
        seen = seen * (255 * float(getattr(processor, "rescale_factor", 1 / 255)))
    if getattr(processor, "do_normalize", True):
        mean, std = (seen.new_tensor(getattr(processor, name)).view(-1, 1, 1) for name in ("image_mean", "image_std"))
        seen = (seen - mean) / std
    return {"pixel_values": seen}


def processor_words(processor: Any) -> str:
    """What a processor does, for records."""
    told = [type(processor).__name__]
    if getattr(processor, "do_resize", False):
        size = getattr(processor, "size", None) or {}
        told += [f"{key} {value}" for key, value in dict(size).items() if value is not None]
    return "as its processor says: " + ", ".join(told)


def load_dense(name: str, config: Any, load: Callable[[str], Any]) -> tuple[nn.Module, tuple[str, ...] | None] | None:
    """The segmenter or detector in a folder or on the Hub, with its classes; None for any other architecture.

    Args:
        name: of the folder or repository, for sentences.
        config: what its ``config.json`` says.
        load: the name of an automatic class of transformers → model and processor.
    """
    kind = _kind(config, name) if config is not None else None
    if kind is None:
        return None
    model, processor = load(f"AutoModel{kind}")
    names = tuple(str(config.id2label[number]) for number in range(config.num_labels))
    classes = None if all(name.startswith("LABEL_") for name in names) else names
    if kind == DETECTION:
        if not callable(getattr(processor, "post_process_object_detection", None)):
            raise HoldfastError(f"hf:{name} must come with a processor of detections, got {type(processor).__name__}")
        return HuggingFaceDetector(model.eval(), processor), classes
    configuration = {
        "architecture": str(config.model_type),
        "task": "segmentation",
        "num_classes": int(config.num_labels),
        "input_size": (3, 224, 224),
        "mean": (0.0, 0.0, 0.0),  # the processor normalises
        "std": (1.0, 1.0, 1.0),
        "interpolation": "bilinear",
    }
    return HuggingFaceSegmenter(model.eval(), processor, configuration), classes


def _kind(config: Any, name: str) -> str | None:
    """By the architecture that wrote the folder."""
    written = (getattr(config, "architectures", None) or [""])[0] or ""
    for begins, kind in _NAMED.items():
        if written.startswith(begins):
            if kind is None:
                raise HoldfastError(f"hf:{name} is a {written}, whose panoptic masks Holdfast does not measure")
            return kind
    return next((kind for kind in (DETECTION, SEMANTIC, UNIVERSAL) if written.endswith(kind)), None)
