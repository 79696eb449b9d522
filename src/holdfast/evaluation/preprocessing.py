"""Preprocessing of the published protocols: resize and crop before corruption, JPEG and resize after it.

ImageNet-C, Hendrycks & Dietterich 2019: short side to 256 (bilinear), centre crop 224, then corrupt; stored sets add a
JPEG of quality 85. The resize to the model's input size comes last. Uncorrupted images get the model's own
preprocessing (``crop_pct``, interpolation). The header of the records lists every step.
"""

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import cv2
import numpy as np
from PIL import Image
from timm.data.transforms import str_to_pil_interp

from holdfast._deprecated import renamed_method
from holdfast.corruptions import prepare
from holdfast.corruptions.severities import preset_of
from holdfast.data.source import UnreadableImage
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import BENCHMARK
from holdfast.evaluation.eval_transform import EvalTransform
from holdfast.evaluation.model_input import ModelInput
from holdfast.io.images import LARGEST_MOVED, check_resized

STORED_QUALITY = 85
SEQUENCE_SIDE = 256  # ImageNet-P moves the uncropped image, so that real borders come in

CORRUPTION = "corruption"  # the step between preprocessing before and after
WHOLE_IMAGES = ("cifar", "tiny")  # presets whose corrupted images also get the model's own resize and crop

Pixels = np.ndarray  # H W 3, uint8


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing from picture to model input, chosen by the task.

    Attributes:
        preset: protocol: ``imagenet`` 224, ``cifar`` 32, ``tiny`` 64, ``inception`` 299, ``any`` (model's size).
        size: height and width of the model's input; None if every image keeps its own, see `native_resolution`.
        mean: per-channel mean of [0,1] pixels.
        std: per-channel standard deviation of [0,1] pixels.
        interpolation: interpolation of the resize from the protocol's size to the model's.
        stored_jpeg: whether corrupted images pass through a JPEG of quality 85, as those of ImageNet-C did.
        preparation: ``model``, or ``benchmark`` for the benchmark's preprocessing of clean images, too.
        own: the model's own resize and crop; None for ``benchmark``, for models without a configuration, and for
            images that come preprocessed.
        whole: whether the pictures already have the protocol's size.
        box: height and width that images at native resolution are fitted into, keeping the aspect ratio.
        described: the recorded description of preprocessing at native resolution.
    """

    preset: str
    size: tuple[int, int] | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str = "bilinear"
    stored_jpeg: bool = False
    preparation: str = BENCHMARK
    own: EvalTransform | None = None
    whole: bool = False
    box: tuple[int, int] | None = None
    described: Mapping[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """The preprocessing as plain data, for the header of the records."""
        if self.size is None:
            return dict(self.described)
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
        """Ordered steps of a cell's images; empty if the header of the record set covers them.

        ``way`` is ``clean``, ``corrupted``, ``frames`` or ``stored``, see `holdfast.evaluation.cell_images`.
        """
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
        height, width = self.fixed_size
        return f"short side {min(height, width)} bilinear, centre crop {height}×{width}"

    def _model_resize(self) -> str:
        """The resize of corrupted images to the model's size; empty if they already have it."""
        if self.own is not None and self.preset in WHOLE_IMAGES:
            return self.own.words()
        side, (height, width) = preset_of(self.preset).side, self.fixed_size
        unchanged = (side or height, side or width) == (height, width)
        return "" if unchanged else f"{height}×{width} {self.interpolation}"

    @property
    def fixed_size(self) -> tuple[int, int]:
        """Height and width of the model's input, which classification has."""
        assert self.size is not None, "images at native resolution have no common size"
        return self.size

    @property
    def same_for_clean(self) -> bool:
        """Whether clean images are preprocessed like corrupted ones, ``to_model(to_protocol(picture))``."""
        return self.own is None or self.preset == "any"

    def clean(self, picture: Image.Image) -> Pixels:
        """The model's input of an uncorrupted picture, by the model's own preprocessing; uint8 (H, W, 3)."""
        if self.own is not None:
            return self.own(picture)
        return self.to_model(self.to_protocol(picture), corrupted=False)

    def to_protocol(self, picture: Image.Image) -> Pixels:
        """Resize and crop a picture as the protocol does before corruption."""
        if self.size is None:
            return np.array(_rgb(picture))
        if self.preset == "cifar":
            return np.array(_short_side_crop(picture, (32, 32)))
        if self.preset == "any":
            return self.own(picture) if self.own is not None else np.array(_short_side_crop(picture, self.size))
        return prepare(picture, self.preset)

    def to_sequence(self, picture: Image.Image, kind: str) -> Pixels:
        """Resize a picture before a perturbation sequence: ImageNet-P crops only after moving the image."""
        if self.size is None:
            raise HoldfastError("perturbation sequences move the image away from its labels: choose other suites")
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

        Images at native resolution are only fitted into the box.
        ImageNet-C images are resized only if the model's size differs, because they are already cropped. CIFAR images
        go through the model's own resize and crop, and so do stored images of any other size.
        """
        if self.size is None:
            return image if self.box is None else _fit_into(self.box, image)
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


def native_resolution(
    wanted: ModelInput, described: Mapping[str, Any], *, preset: str = "any", box: tuple[int, int] | None = None
) -> Preprocessing:
    """Build the preprocessing of dense tasks: images are corrupted as stored, and labels stay untouched.

    Args:
        wanted: input configuration of the model.
        described: the preprocessing as plain data, for the header of the records.
        preset: preset of the corruption parameters; ``any`` follows imagecorruptions' rules for arbitrary sizes.
        box: height and width that images are fitted into before the model (ACDC: 1024×2048); None keeps their size.
    """
    return Preprocessing(preset, None, wanted.mean, wanted.std, box=box, described=described)


def _fit_into(box: tuple[int, int], image: Pixels) -> Pixels:
    """Fit an image into a box, with OpenCV's bilinear resize without antialiasing as in the released code."""
    ratio = min(max(box) / max(image.shape[:2]), min(box) / min(image.shape[:2]))
    # half rounds up, as in mmcv.imrescale; Python's round() would round half to even
    height, width = (max(1, int(side * ratio + 0.5)) for side in image.shape[:2])
    same = (height, width) == image.shape[:2]
    return image if same else cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)


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
