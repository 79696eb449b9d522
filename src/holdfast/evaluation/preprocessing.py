"""From a file's picture to what the model sees, in the steps of the published protocols.

ImageNet-C, Hendrycks & Dietterich 2019: short side to 256 (bilinear), centre crop 224, then corrupt; stored sets add a
JPEG of quality 85. Only then comes the model's own size. Images that are not corrupted are prepared as the model itself
wants it, by its ``crop_pct`` and interpolation. Every step is kept in the records.
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

from holdfast.corruptions import prepare
from holdfast.corruptions.severities import preset_of
from holdfast.data.source import UnreadableImage
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import BENCHMARK, MODEL
from holdfast.evaluation.eval_transform import EvalTransform, check_interpolation
from holdfast.io.image_sizes import LARGEST_MOVED, check_resized
from holdfast.models.unwrap import unwrap_model

STORED_QUALITY = 85
SEQUENCE_SIDE = 256  # ImageNet-P moves the uncropped image, so that real borders come in

CORRUPTION = "corruption"  # the step of a cell that is not preparation
WHOLE_IMAGES = ("cifar", "tiny")  # small images, which a model resizes and crops also when they are corrupted

Pixels = np.ndarray  # H W 3, uint8


@dataclass(frozen=True)
class ModelInput:
    """What the model wants to see.

    ``size`` None means the protocol's own size, ``window`` None whole images, ``crop_pct`` None a model that does not
    say how it prepares images: the benchmark's preparation then serves clean images too. ``own_steps`` is what a
    detector or segmenter of another project does itself, for records.
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
    """All between a picture and the model. A task chooses it; :class:`Preprocessing` is classification's."""

    @property
    def preset(self) -> str:
        """Whose corruption parameters and protocol."""
        ...

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of what the model gets; None where every image keeps its own."""
        ...

    @property
    def mean(self) -> tuple[float, ...]:
        """Subtracted from [0,1] pixels."""
        ...

    @property
    def std(self) -> tuple[float, ...]:
        """Divides them then."""
        ...

    @property
    def same_for_clean(self) -> bool:
        """Whether clean images take the way of those that are corrupted, ``after(before(picture))``."""
        ...

    def record(self) -> dict[str, Any]:
        """The steps as plain data."""
        ...

    def named(self, way: str) -> list[str]:
        """The steps of one cell's images, which its definition names; none where the record set's header says all.

        ``way`` is ``clean``, ``corrupted``, ``frames`` or ``stored``, see :mod:`holdfast.evaluation.cell_images`.
        """
        ...

    def clean(self, picture: Image.Image) -> Pixels:
        """What the model gets of a picture that nothing is done to."""
        ...

    def before(self, picture: Image.Image) -> Pixels:
        """The picture as it is corrupted."""
        ...

    def before_sequence(self, picture: Image.Image, kind: str) -> Pixels:
        """The picture as a perturbation sequence wants it."""
        ...

    def after(self, image: Pixels, *, corrupted: bool) -> Pixels:
        """What the model gets, still bytes."""
        ...


@dataclass(frozen=True)
class Preprocessing:
    """All steps between a picture and a classifier.

    Attributes:
        preset: whose protocol: ``imagenet`` 224, ``cifar`` 32, ``tiny`` 64, ``inception`` 299, ``any`` (model's size).
        size: height and width of what the model gets.
        mean: subtracted from [0,1] pixels.
        std: divides them then.
        interpolation: how the protocol's image is brought to that size, if it differs.
        stored_jpeg: whether corrupted images pass through a JPEG of quality 85, as those of ImageNet-C did.
        preparation: ``model``, or ``benchmark`` for the benchmark's own preparation also of clean images.
        own: how the model itself prepares images; None for ``benchmark``, where the model does not say it, and where
            images come prepared.
        whole: whether pictures have the protocol's size already.
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
        """The steps as plain data."""
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
            "model_size": self._to_model() or "as it is",
            **({"clean": self.own.words()} if self.own is not None else {}),
            **policy,
            "mean": list(self.mean),
            "std": list(self.std),
        }

    def named(self, way: str) -> list[str]:
        """The steps of a cell's images in their order, such as ``corruption`` between two sizes."""
        if self.preparation == BENCHMARK:
            return []
        if way == "clean":
            return [self.own.words()] if self.own is not None else [*self._prepared(), *_some(self._to_model())]
        stored = way == "stored" and self.preset not in ("imagenet", "inception")
        jpeg = [f"JPEG quality {STORED_QUALITY}"] if self.stored_jpeg and way == "corrupted" else []
        return [*([] if stored else self._prepared()), CORRUPTION, *jpeg, *_some(self._to_model())]

    def _prepared(self) -> list[str]:
        """The benchmark's own steps, which images of its size do not need."""
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

    def _to_model(self) -> str:
        """What brings a corrupted image to the model; nothing where it has its size."""
        if self.own is not None and self.preset in WHOLE_IMAGES:
            return self.own.words()
        side = preset_of(self.preset).side
        unchanged = (side or self.size[0], side or self.size[1]) == self.size
        return "" if unchanged else f"{self.size[0]}×{self.size[1]} {self.interpolation}"

    @property
    def same_for_clean(self) -> bool:
        """Where the model has no way of its own, or images are corrupted at its size."""
        return self.own is None or self.preset == "any"

    def clean(self, picture: Image.Image) -> Pixels:
        """As the model itself prepares it."""
        if self.own is not None:
            return self.own(picture)
        return self.after(self.before(picture), corrupted=False)

    def before(self, picture: Image.Image) -> Pixels:
        """See :func:`protocol_image`."""
        return protocol_image(picture, self)

    def before_sequence(self, picture: Image.Image, kind: str) -> Pixels:
        """See :func:`sequence_image`."""
        return sequence_image(picture, self, kind)

    def after(self, image: Pixels, *, corrupted: bool) -> Pixels:
        """See :func:`at_model_size`."""
        return at_model_size(image, self, corrupted=corrupted)


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
    """What was asked for, else what the model's timm configuration says, else [0,1] pixels of the protocol's size."""
    inner: Any = unwrap_model(model)
    told: Any = getattr(inner, "pretrained_cfg", None) or {}
    known = dict(resolve_model_data_config(inner)) if told else {}
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
        crop_pct=crop_pct if crop_pct is not None else known["crop_pct"] if _says_crop(told) else None,
        crop_mode=str(known.get("crop_mode", "center")),
        preparation=preparation,
        own_steps=getattr(inner, "own_steps", {}),
    )
    if chosen.size is not None:
        check_side(chosen.size)
    if interpolation is not None:
        check_interpolation(interpolation)
    return chosen


def _says_crop(told: Any) -> bool:
    """Whether a configuration says it; timm assumes 0.875 of one that does not, such as a foreign file's."""
    return (told.get("crop_pct") if isinstance(told, dict) else getattr(told, "crop_pct", None)) is not None


def normalisation(
    mean: Sequence[float], std: Sequence[float], *, pixel_range: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std of [0,1] pixels, from those of pixels up to ``pixel_range``; refuses what cannot be right."""
    mean, std = tuple(map(float, mean)), tuple(map(float, std))
    if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
        raise HoldfastError(f"mean and std must be three values, std positive, got {mean} and {std}")
    if pixel_range == 1 and max(*mean, *std) > 1:
        raise HoldfastError(
            f"mean and std must be those of pixels from 0 to 1, got {mean} and {std}: give --pixel-range 255 "
            "(EvalProtocol(pixel_range=255)) if they are of pixels from 0 to 255"
        )
    if pixel_range != 1 and 0 < max(mean) <= 1:
        raise HoldfastError(
            f"mean and std must be those of pixels from 0 to 255, got {mean} and {std}: leave --pixel-range 255 "
            "away, or give --mean and --std in its units"
        )
    return tuple(value / pixel_range for value in mean), tuple(value / pixel_range for value in std)


def check_side(size: int | tuple[int, ...]) -> None:
    """Refuse an image size that no model has."""
    sides = (size,) if isinstance(size, int) else size
    if not all(1 <= side <= LARGEST_SIDE for side in sides):
        raise HoldfastError(f"size must be positive and at most {LARGEST_SIDE} pixels, got {size}")


def choose_preset(images: Any, wanted: ModelInput) -> str:
    """The protocol that fits: by the images if all of a first few are 32×32 or 64×64, else by the model's size.

    Images that come prepared, all of one size, stay as they are.
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
    """All steps for a protocol and a model.

    Args:
        preset: whose protocol.
        wanted: what the model wants to see.
        stored_jpeg: as the stored ImageNet-C was.
        prepared: the size of images that come prepared: where it is the model's they stay as they are, and where the
            model does not say its own it is taken for it.
        images: the pictures, whose first few tell whether they have the protocol's size already.
    """
    side = preset_of(preset).side
    size = wanted.size or prepared or (side or 224, side or 224)
    steps = Preprocessing(
        preset, size, wanted.mean, wanted.std, wanted.interpolation, stored_jpeg, preparation=wanted.preparation
    )
    if wanted.preparation == BENCHMARK:
        return steps
    whole = hasattr(images, "image") and _first_sizes(images) == {(side, side)}  # films of a stored set have none
    if wanted.crop_pct is None or size == prepared:
        return replace(steps, whole=whole)
    own = EvalTransform(size, wanted.crop_pct, wanted.crop_mode, wanted.interpolation, wanted.mean)
    return replace(steps, own=own, whole=whole)


def protocol_image(picture: Image.Image, steps: Preprocessing) -> Pixels:
    """The picture as the protocol wants it before it is corrupted."""
    if steps.preset == "cifar":
        return np.array(_short_side_crop(picture, (32, 32)))
    if steps.preset == "any":
        return steps.own(picture) if steps.own is not None else np.array(_short_side_crop(picture, steps.size))
    return prepare(picture, steps.preset)


def sequence_image(picture: Image.Image, steps: Preprocessing, kind: str) -> Pixels:
    """The picture as a perturbation sequence wants it: ImageNet-P crops only after it has moved the image."""
    if steps.preset == "imagenet":
        scale = SEQUENCE_SIDE / min(picture.size)
        width, height = (max(SEQUENCE_SIDE, int(length * scale)) for length in picture.size)
        check_resized(picture.size, (width, height), largest=LARGEST_MOVED)
        return np.array(_rgb(picture).resize((width, height), Image.Resampling.BILINEAR))
    if steps.preset == "tiny" and kind == "motion_blur" and min(picture.size) >= preset_of("tiny").side:
        return np.array(_rgb(picture))
    return protocol_image(picture, steps)


def at_model_size(image: Pixels, steps: Preprocessing, *, corrupted: bool) -> Pixels:
    """The image as the model gets it, still bytes: re-encoded if stored sets did so, and at the model's size.

    ImageNet-C's images are resized only where the model's size differs: its crop is done. CIFAR's whole images go
    through the model's own resize and crop, and so do stored ones of any other size.
    """
    if steps.stored_jpeg and corrupted:
        image = _through_jpeg(image)
    if steps.own is not None and steps.preset in WHOLE_IMAGES:
        return steps.own(Image.fromarray(image))
    if image.shape[:2] == steps.size:
        return image
    if steps.own is not None and steps.preset == "any":
        return steps.own(Image.fromarray(image))
    height, width = steps.size
    method: Any = str_to_pil_interp(steps.interpolation)
    return np.array(Image.fromarray(image).resize((width, height), method))


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
    """The picture in colours; Pillow would copy one that is."""
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def largest_size(images: Any, count: int = 8) -> tuple[int, int]:
    """Height and width of the largest of a first few images; 224×224 if none can be read."""
    return max(((height, width) for width, height in _first_sizes(images, count)), key=math.prod, default=(224, 224))


def _first_sizes(images: Any, count: int = 8) -> set[tuple[int, int]]:
    sizes = set()
    for index in range(min(count, len(images))):
        try:
            sizes.add(images.image(index).size)
        except (UnreadableImage, MemoryError):
            continue
    return sizes
