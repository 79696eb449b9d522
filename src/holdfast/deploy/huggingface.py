"""Models of Hugging Face's transformers with their own preprocessing: ``hf:DIR|NAME``.

Only safetensors weights are read, and no code of the repository is run.
"""

import contextlib
import logging
import math
import re
from collections.abc import Iterator
from textwrap import shorten
from typing import Any

from PIL import Image
from torch import Tensor, nn

from holdfast.deploy.huggingface_dense import load_dense
from holdfast.errors import HoldfastError
from holdfast.models.hub_offline import quick_hub

IMAGENET = 1000  # classes, whose names vary between repositories while their order does not
_WORDS = {
    Image.Resampling.BILINEAR: "bilinear",
    Image.Resampling.BICUBIC: "bicubic",
    Image.Resampling.LANCZOS: "lanczos",
}


class HuggingFaceModel(nn.Module):
    """Wrapper of a transformers classifier that maps images to logits instead of an output object."""

    def __init__(self, model: nn.Module, configuration: dict[str, Any]) -> None:
        super().__init__()
        self.model = model
        self.pretrained_cfg = configuration
        self.num_classes = int(configuration["num_classes"])

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images (B, 3, H, W) → logits (B, classes)."""
        return self.model(pixel_values=images).logits


def load_hugging_face(name: str) -> tuple[nn.Module, tuple[str, ...] | None]:
    """Load a model from a folder or the Hub, with its class names unless they are placeholders."""
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise HoldfastError(
            "hf: models need transformers, which is not installed; run: pip install transformers"
        ) from error
    dense = load_dense(name, _config(name), lambda kind: _load(getattr(transformers, kind), name, what="a dense model"))
    if dense is not None:
        return dense
    model, processor = _load(transformers.AutoModelForImageClassification, name, what="a classifier")
    configuration = {
        "architecture": str(getattr(model.config, "model_type", type(model).__name__)),
        "num_classes": int(model.config.num_labels),
        **preprocessing_of(processor, name=name),
    }
    return HuggingFaceModel(model, configuration), _classes(model.config)


def _config(name: str) -> Any:
    """What ``config.json`` says; nothing where it cannot be read, which loading the model then tells."""
    from transformers import AutoConfig

    try:
        with quick_hub(), _quiet():
            return AutoConfig.from_pretrained(name, trust_remote_code=False)
    except Exception:  # transformers, the Hub and safetensors have exceptions of their own
        return None


def _load(kind: Any, name: str, *, what: str) -> tuple[Any, Any]:
    """A model of one of transformers' automatic classes with all its weights, and its processor."""
    from transformers import AutoImageProcessor

    try:
        with quick_hub(), _quiet():
            model, report = kind.from_pretrained(
                name, trust_remote_code=False, use_safetensors=True, output_loading_info=True
            )
            processor = AutoImageProcessor.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # likewise
        raise HoldfastError(
            f"hf:{name} must be an image classifier, segmenter or detector of transformers with its preprocessing, in "
            f"safetensors ({shorten(str(error), 160, placeholder=' …')})"
        ) from error
    if report["missing_keys"]:
        lacking = sorted(map(str, report["missing_keys"]))[0]
        raise HoldfastError(f"hf:{name} must hold all weights of {what}, but {lacking} is missing")
    return model, processor


def preprocessing_of(processor: Any, *, name: str) -> dict[str, Any]:
    """Convert a processor's settings to timm's: size, and (x − mean) / std for pixels in [0, 1].

    A processor computes (255 · factor · x − mean) / std if it rescales, and (255 · x − mean) / std otherwise.
    """

    def setting(key: str, default: Any = None) -> Any:
        value = getattr(processor, key, None)
        return default if value is None else value

    if setting("include_top", False):
        raise HoldfastError(f"hf:{name} normalises its images twice (include_top), which is not supported")
    scale = 255.0 * float(setting("rescale_factor", 1 / 255)) if setting("do_rescale", True) else 255.0
    normalised, shift = setting("do_normalize", True), 1.0 if setting("rescale_offset", False) else 0.0
    mean = _three(setting("image_mean", 0.0)) if normalised else (0.0,) * 3
    std = _three(setting("image_std", 1.0)) if normalised else (1.0,) * 3
    resample = Image.Resampling(int(setting("resample", Image.Resampling.BILINEAR)))
    return {
        "input_size": (3, *_side(processor, name)),
        "mean": tuple((value + shift) / scale for value in mean),
        "std": tuple(value / scale for value in std),
        "interpolation": _WORDS.get(resample, "bilinear"),
        **_crop(processor),
    }


def _side(processor: Any, name: str) -> tuple[int, int]:
    size = getattr(processor, "crop_size", None) if getattr(processor, "do_center_crop", False) else None
    size = size or getattr(processor, "size", None) or {}
    size = dict(size) if not isinstance(size, int) else {"shortest_edge": size}
    edge = size.get("shortest_edge")
    height, width = size.get("height") or edge, size.get("width") or edge
    if not height or not width:
        raise HoldfastError(f"hf:{name} must define the input size, got {size}")
    return int(height), int(width)


def _crop(processor: Any) -> dict[str, Any]:
    """Convert a processor's resize and crop to timm's crop_pct and crop_mode; empty without a resize."""
    if not getattr(processor, "do_resize", True):
        return {}
    size = getattr(processor, "size", None) or {}
    size = dict(size) if not isinstance(size, int) else {"shortest_edge": size}
    short = size.get("shortest_edge")
    if short and getattr(processor, "crop_pct", None):  # ConvNeXt's processor resizes to 384 and more without a crop
        squashed = short >= 384
        return {"crop_pct": 1.0 if squashed else processor.crop_pct, "crop_mode": "squash" if squashed else "center"}
    resized = short or size.get("height")
    cropped = getattr(processor, "crop_size", None) if getattr(processor, "do_center_crop", False) else None
    side = dict(cropped).get("height") if cropped is not None and not isinstance(cropped, int) else cropped
    share = side / resized if side and side < resized else 1.0
    if (
        side and math.floor(side / share) < resized
    ):  # timm computes floor(side / crop_pct), which rounding may put one pixel low
        share = side / (resized + 0.5)
    return {"crop_pct": share, "crop_mode": "center" if short else "squash"}


def _three(values: Any) -> tuple[float, ...]:
    return tuple(map(float, values)) if isinstance(values, list | tuple) else (float(values),) * 3


def _classes(config: Any) -> tuple[str, ...] | None:
    names = [str(config.id2label[number]) for number in range(config.num_labels)]
    return None if len(names) == IMAGENET or re.fullmatch(r"LABEL_\d+", names[0]) else tuple(names)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the logging and progress bars of transformers."""
    from transformers.utils import logging as transformers_logging

    loggers = [logging.getLogger("huggingface_hub"), logging.getLogger("transformers")]
    levels = [logger.level for logger in loggers]
    transformers_logging.disable_progress_bar()
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        transformers_logging.enable_progress_bar()
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
