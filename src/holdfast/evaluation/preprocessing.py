"""Preprocessing of the published protocols: resize and crop before corruption, JPEG and resize after it.

ImageNet-C, Hendrycks & Dietterich 2019: short side to 256 (bilinear), centre crop 224, then corrupt; stored sets add a
JPEG of quality 85. The resize to the model's input size comes last. Uncorrupted images get the model's own
preprocessing (``crop_pct``, interpolation). The header of the records lists every step.
"""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from PIL import Image
from timm.data import resolve_model_data_config
from timm.data.transforms import str_to_pil_interp
from torch import nn

from holdfast._deprecated import renamed_method
from holdfast.corruptions import prepare
from holdfast.corruptions.severities import preset_of
from holdfast.data.source import UnreadableImage
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import BENCHMARK, MODEL
from holdfast.evaluation.eval_transform import EvalTransform, check_interpolation
from holdfast.io.images import LARGEST_MOVED, check_resized
from holdfast.runtime.device import unwrap_model

STORED_QUALITY = 85
SEQUENCE_SIDE = 256  # ImageNet-P moves the uncropped image, so that real borders come in

CORRUPTION = "corruption"  # the step between preprocessing before and after
WHOLE_IMAGES = ("cifar", "tiny")  # presets whose corrupted images also get the model's own resize and crop

Pixels = np.ndarray  # H W 3, uint8


@dataclass(frozen=True)
class ModelInput:
    """Input configuration of a model.

    ``size`` None means the protocol's size, ``window`` None whole images, and ``crop_pct`` None a model without its own
    preprocessing: clean images then get the benchmark's. ``own_steps`` is the preprocessing inside another project's
    detector or segmenter, for records.
    """

    size: tuple[int, int] | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str
    window: tuple[int, int] | None = None
    stride: int | None = None
    crop_pct: float | None = None
    crop_mode: str = "center"
    preparation: str = MODEL
    own_steps: Mapping[str, Any] = field(default_factory=dict)


class PreprocessingSteps(Protocol):
    """Preprocessing from picture to model input, chosen by the task; :class:`Preprocessing` is classification's."""

    @property
    def preset(self) -> str:
        """Preset of the corruption parameters and the protocol."""
        ...

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of the model's input; None if every image keeps its own."""
        ...

    @property
    def mean(self) -> tuple[float, ...]:
        """Per-channel mean of [0,1] pixels."""
        ...

    @property
    def std(self) -> tuple[float, ...]:
        """Per-channel standard deviation of [0,1] pixels."""
        ...

    @property
    def same_for_clean(self) -> bool:
        """Whether clean images are preprocessed like corrupted ones, ``to_model(to_protocol(picture))``."""
        ...

    def record(self) -> dict[str, Any]:
        """The preprocessing as plain data, for the header of the records."""
        ...

    def cell_steps(self, way: str) -> list[str]:
        """Steps of a cell's images, for its definition; empty if the header of the record set covers them.

        ``way`` is ``clean``, ``corrupted``, ``frames`` or ``stored``, see :mod:`holdfast.evaluation.cell_images`.
        """
        ...

    def clean(self, picture: Image.Image) -> Pixels:
        """The model's input of an uncorrupted picture, uint8 (H, W, 3)."""
        ...

    def to_protocol(self, picture: Image.Image) -> Pixels:
        """Resize and crop a picture as the protocol does before corruption."""
        ...

    def to_sequence(self, picture: Image.Image, kind: str) -> Pixels:
        """Resize a picture as the protocol does before a perturbation sequence."""
        ...

    def to_model(self, image: Pixels, *, corrupted: bool) -> Pixels:
        """Bring a protocol image to the model's input size, uint8 (H, W, 3)."""
        ...


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing of a classifier's images.

    Attributes:
        preset: protocol: ``imagenet`` 224, ``cifar`` 32, ``tiny`` 64, ``inception`` 299, ``any`` (model's size).
        size: height and width of the model's input.
        mean: per-channel mean of [0,1] pixels.
        std: per-channel standard deviation of [0,1] pixels.
        interpolation: interpolation of the resize from the protocol's size to the model's.
        stored_jpeg: whether corrupted images pass through a JPEG of quality 85, as those of ImageNet-C did.
        preparation: ``model``, or ``benchmark`` for the benchmark's preprocessing of clean images, too.
        own: the model's own resize and crop; None for ``benchmark``, for models without a configuration, and for
            images that come preprocessed.
        whole: whether the pictures already have the protocol's size.
    """

    preset: str
    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str
    stored_jpeg: bool = False
    preparation: str = BENCHMARK
    own: EvalTransform | None = None
    whole: bool = False

    def record(self) -> dict[str, Any]:
        """The preprocessing as plain data, for the header of the records."""
        before = {
            "imagenet": "short side 256 bilinear, centre crop 224; 224×224 files as they are",
            "inception": "centre crop 87.5 %, 299×299 bilinear",
            "tiny": "64×64 bilinear",
            "cifar": "32×32 files as they are; others short side 32 bilinear, centre crop 32",
            "any": self._at_any_size(),
        }[self.preset]
        policy = {"preparation": self.preparation} if self.preparation != BENCHMARK else {}
        return {
            "protocol": before,
            "after_corruption": f"JPEG quality {STORED_QUALITY}" if self.stored_jpeg else "nothing",
            "model_size": self._model_resize() or "as it is",
            **({"clean": self.own.words()} if self.own is not None else {}),
            **policy,
            "mean": list(self.mean),
            "std": list(self.std),
        }

    def cell_steps(self, way: str) -> list[str]:
        """Ordered steps of a cell's images, with ``corruption`` between the resizes."""
        if self.preparation == BENCHMARK:
            return []
        if way == "clean":
            return (
                [self.own.words()] if self.own is not None else [*self._benchmark_steps(), *_some(self._model_resize())]
            )
        stored = way == "stored" and self.preset not in ("imagenet", "inception")
        jpeg = [f"JPEG quality {STORED_QUALITY}"] if self.stored_jpeg and way == "corrupted" else []
        return [*([] if stored else self._benchmark_steps()), CORRUPTION, *jpeg, *_some(self._model_resize())]

    def _benchmark_steps(self) -> list[str]:
        """The benchmark's resize and crop; none for images that already have its size."""
        words = {
            "imagenet": "short side 256 bilinear, centre crop 224×224",
            "inception": "centre crop 87.5 %, 299×299 bilinear",
            "tiny": "64×64 bilinear",
            "cifar": "short side 32 bilinear, centre crop 32×32",
            "any": self._at_any_size(),
        }
        return [] if self.whole else [words[self.preset]]

    def _at_any_size(self) -> str:
        if self.own is not None:
            return self.own.words()
        return f"short side {min(self.size)} bilinear, centre crop {self.size[0]}×{self.size[1]}"

    def _model_resize(self) -> str:
        """The resize of corrupted images to the model's size; empty if they already have it."""
        if self.own is not None and self.preset in WHOLE_IMAGES:
            return self.own.words()
        side = preset_of(self.preset).side
        unchanged = (side or self.size[0], side or self.size[1]) == self.size
        return "" if unchanged else f"{self.size[0]}×{self.size[1]} {self.interpolation}"

    @property
    def same_for_clean(self) -> bool:
        """True if the model has no preprocessing of its own, or images are corrupted at its size."""
        return self.own is None or self.preset == "any"

    def clean(self, picture: Image.Image) -> Pixels:
        """The model's input of an uncorrupted picture, by the model's own preprocessing."""
        if self.own is not None:
            return self.own(picture)
        return self.to_model(self.to_protocol(picture), corrupted=False)

    def to_protocol(self, picture: Image.Image) -> Pixels:
        """Resize and crop a picture as the protocol does before corruption."""
        if self.preset == "cifar":
            return np.array(_short_side_crop(picture, (32, 32)))
        if self.preset == "any":
            return self.own(picture) if self.own is not None else np.array(_short_side_crop(picture, self.size))
        return prepare(picture, self.preset)

    def to_sequence(self, picture: Image.Image, kind: str) -> Pixels:
        """Resize a picture before a perturbation sequence: ImageNet-P crops only after moving the image."""
        if self.preset == "imagenet":
            scale = SEQUENCE_SIDE / min(picture.size)
            width, height = (max(SEQUENCE_SIDE, int(length * scale)) for length in picture.size)
            check_resized(picture.size, (width, height), largest=LARGEST_MOVED)
            return np.array(_rgb(picture).resize((width, height), Image.Resampling.BILINEAR))
        if self.preset == "tiny" and kind == "motion_blur" and min(picture.size) >= preset_of("tiny").side:
            return np.array(_rgb(picture))
        return self.to_protocol(picture)

    def to_model(self, image: Pixels, *, corrupted: bool) -> Pixels:
        """Bring an image to the model's size, uint8; corrupted images are re-encoded as JPEG if the protocol says so.

        ImageNet-C images are resized only if the model's size differs, because they are already cropped. CIFAR images
        go through the model's own resize and crop, and so do stored images of any other size.
        """
        if self.stored_jpeg and corrupted:
            image = _through_jpeg(image)
        if self.own is not None and self.preset in WHOLE_IMAGES:
            return self.own(Image.fromarray(image))
        if image.shape[:2] == self.size:
            return image
        if self.own is not None and self.preset == "any":
            return self.own(Image.fromarray(image))
        height, width = self.size
        method: Any = str_to_pil_interp(self.interpolation)
        return np.array(Image.fromarray(image).resize((width, height), method))

    before = renamed_method("before", "to_protocol")
    before_sequence = renamed_method("before_sequence", "to_sequence")
    after = renamed_method("after", "to_model")


def _some(words: str) -> list[str]:
    return [words] if words else []


LARGEST_SIDE = 4096


def model_input(
    model: nn.Module,
    *,
    size: int | tuple[int, int] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    interpolation: str | None = None,
    crop_pct: float | None = None,
    pixel_range: int = 1,
    preparation: str = MODEL,
) -> ModelInput:
    """Input configuration: the given values, else those of the model's timm configuration, else unnormalised pixels."""
    inner: Any = unwrap_model(model)
    config: Any = getattr(inner, "pretrained_cfg", None) or {}
    known = dict(resolve_model_data_config(inner)) if config else {}
    side = (size, size) if isinstance(size, int) else size
    side = side or (tuple(known["input_size"][1:]) if known else None)
    mean, std = normalisation(
        mean if mean is not None else known.get("mean", (0.0, 0.0, 0.0)),
        std if std is not None else known.get("std", (1.0, 1.0, 1.0)),
        pixel_range=pixel_range,
    )
    chosen = ModelInput(
        side,
        mean,
        std,
        interpolation or str(known.get("interpolation", "bilinear")),
        window=getattr(inner, "window", None),
        stride=getattr(inner, "stride", None),
        crop_pct=crop_pct if crop_pct is not None else known["crop_pct"] if _has_crop_pct(config) else None,
        crop_mode=str(known.get("crop_mode", "center")),
        preparation=preparation,
        own_steps=getattr(inner, "own_steps", {}),
    )
    if chosen.size is not None:
        check_side(chosen.size)
    if interpolation is not None:
        check_interpolation(interpolation)
    return chosen


def _has_crop_pct(config: Any) -> bool:
    """Whether a configuration has a crop_pct; timm would assume 0.875 for one without, such as an ONNX file's."""
    return (config.get("crop_pct") if isinstance(config, dict) else getattr(config, "crop_pct", None)) is not None


def normalisation(
    mean: Sequence[float], std: Sequence[float], *, pixel_range: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Convert mean and std of pixels up to ``pixel_range`` to [0,1] pixels; raises an error for implausible values."""
    mean, std = tuple(map(float, mean)), tuple(map(float, std))
    if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
        raise HoldfastError(f"mean and std must be three values, std positive, got {mean} and {std}")
    if pixel_range == 1 and max(*mean, *std) > 1:
        raise HoldfastError(
            f"mean and std must refer to pixels from 0 to 1, got {mean} and {std}: give --pixel-range 255 "
            "(EvalProtocol(pixel_range=255)) if they refer to pixels from 0 to 255"
        )
    if pixel_range != 1 and 0 < max(mean) <= 1:
        raise HoldfastError(
            f"mean and std must refer to pixels from 0 to 255, got {mean} and {std}: omit --pixel-range 255, "
            "or give --mean and --std in that range"
        )
    return tuple(value / pixel_range for value in mean), tuple(value / pixel_range for value in std)


def check_side(size: int | tuple[int, ...]) -> None:
    """Raise an error for a size below 1 or above 4096 pixels."""
    sides = (size,) if isinstance(size, int) else size
    if not all(1 <= side <= LARGEST_SIDE for side in sides):
        raise HoldfastError(f"size must be positive and at most {LARGEST_SIDE} pixels, got {size}")


def choose_preset(images: Any, wanted: ModelInput) -> str:
    """Choose the preset: by the images if the first few are all 32×32 or 64×64, else by the model's input size.

    Images that come preprocessed, all of one size, stay as they are.
    """
    if getattr(images, "prepared", None) is not None:
        return {(32, 32): "cifar", (64, 64): "tiny", (224, 224): "imagenet", (299, 299): "inception"}.get(
            tuple(images.prepared), "any"
        )
    sizes = _first_sizes(images)
    if sizes in ({(32, 32)}, {(64, 64)}):
        return "cifar" if sizes == {(32, 32)} else "tiny"
    side = min(wanted.size) if wanted.size else 224
    if side == 299:
        return "inception"
    return "cifar" if side <= 48 else "tiny" if side <= 96 else "imagenet"


def preprocessing(
    preset: str,
    wanted: ModelInput,
    *,
    stored_jpeg: bool = False,
    prepared: tuple[int, int] | None = None,
    images: Any = None,
) -> Preprocessing:
    """Build the preprocessing for a protocol and a model.

    Args:
        preset: protocol by name.
        wanted: input configuration of the model.
        stored_jpeg: pass corrupted images through a JPEG of quality 85, as the stored ImageNet-C was.
        prepared: size of images that come preprocessed; they stay as they are if it equals the model's, and a model
            without a size of its own takes it.
        images: the pictures, whose first few show whether they already have the protocol's size.
    """
    side = preset_of(preset).side
    size = wanted.size or prepared or (side or 224, side or 224)
    steps = Preprocessing(
        preset, size, wanted.mean, wanted.std, wanted.interpolation, stored_jpeg, preparation=wanted.preparation
    )
    if wanted.preparation == BENCHMARK:
        return steps
    whole = hasattr(images, "image") and _first_sizes(images) == {(side, side)}  # stored sequences have no images
    if wanted.crop_pct is None or size == prepared:
        return replace(steps, whole=whole)
    own = EvalTransform(size, wanted.crop_pct, wanted.crop_mode, wanted.interpolation, wanted.mean)
    return replace(steps, own=own, whole=whole)


def _through_jpeg(image: Pixels) -> Pixels:
    file = io.BytesIO()
    Image.fromarray(image).save(file, format="JPEG", quality=STORED_QUALITY, optimize=True)
    return np.array(Image.open(file))


def _short_side_crop(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    height, width = size
    rgb = _rgb(picture)
    if rgb.size == (width, height):
        return rgb
    scale = max(width / rgb.width, height / rgb.height)
    larger = (max(width, round(rgb.width * scale)), max(height, round(rgb.height * scale)))
    check_resized(rgb.size, larger)
    rgb = rgb.resize(larger, Image.Resampling.BILINEAR)
    left, top = (rgb.width - width) // 2, (rgb.height - height) // 2
    return rgb.crop((left, top, left + width, top + height))


def _rgb(picture: Image.Image) -> Image.Image:
    """The picture in RGB, without the copy that Pillow's convert makes of an RGB picture."""
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def largest_size(images: Any, count: int = 8) -> tuple[int, int]:
    """Height and width of the largest of the first few images; 224×224 if none can be read."""
    return max(((height, width) for width, height in _first_sizes(images, count)), key=math.prod, default=(224, 224))


def _first_sizes(images: Any, count: int = 8) -> set[tuple[int, int]]:
    sizes = set()
    for index in range(min(count, len(images))):
        try:
            sizes.add(images.image(index).size)
        except (UnreadableImage, MemoryError):
            continue
    return sizes
